//! Snapshots that come, and reports that go.

use std::sync::{Arc, Mutex};

use endpoint_picker_engine::metrics::Totals;
use endpoint_picker_wire::Message;
use endpoint_picker_wire::report::Report;
use endpoint_picker_wire::statistics::Count;

use crate::fixture::{Current, agent, answer, attach_to, eventually, eventually_has, query, snapshot};
use crate::server::{Request, Server};

#[test]
fn newer_snapshots_replace_the_view() {
    let current = Current::new(Mutex::new(snapshot(2, 1)));
    let server = Server::start(agent(&current));
    let attachment = attach_to(&[format!("http://{}", server.address())]);
    let first = eventually_has(&attachment, 2, 1);
    assert_eq!(first.pool().as_slice().len(), 2);
    *current.lock().unwrap() = snapshot(2, 2);
    let second = eventually_has(&attachment, 2, 2);
    assert!(Arc::ptr_eq(first.topology(), second.topology()), "the topology is not compiled again");
    *current.lock().unwrap() = snapshot(3, 3);
    assert_eq!(eventually_has(&attachment, 3, 3).pool().as_slice().len(), 3);
    // A poll is counted after its snapshot is in use.
    let (mut published, mut failed) = (0, 0);
    eventually("three counted polls", || {
        let polls = attachment.pool().take_polls();
        published += polls.published;
        failed += polls.failed;
        published >= 3
    });
    assert_eq!((published, failed), (3, 0));
}

#[test]
fn a_poll_names_the_versions_that_the_module_has_and_waits_a_quarter_of_a_second() {
    let requests = Arc::new(Mutex::new(Vec::<Request>::new()));
    let server = Server::start({
        let requests = Arc::clone(&requests);
        move |request| {
            requests.lock().unwrap().push(request.clone());
            answer(request, &snapshot(2, 7))
        }
    });
    let attachment = attach_to(&[format!("http://{}", server.address())]);
    eventually_has(&attachment, 2, 7);
    let polls = || {
        let requests = requests.lock().unwrap();
        requests.iter().filter(|request| request.path.contains("/snapshot")).cloned().collect::<Vec<_>>()
    };
    eventually("a second poll", || polls().len() >= 2);
    let has = |request: &Request| {
        let query = query(&request.path);
        ["wait_ms", "topology", "readings"].map(|name| query.get(name).copied())
    };
    assert_eq!(has(&polls()[0]), [Some(250), None, None]);
    assert_eq!(has(&polls()[1]), [Some(250), Some(2), Some(7)]);
    assert!(polls().iter().all(|poll| poll.has("host: metrics-agent")), "{:?}", polls());
}

#[test]
fn reports_have_the_totals_of_all_workers() {
    let reports = Arc::new(Mutex::new(Vec::<Report>::new()));
    let server = Server::start({
        let reports = Arc::clone(&reports);
        move |request| {
            if request.is_report() {
                assert!(request.has("content-type: application/x-protobuf"), "{request:?}");
                reports.lock().unwrap().push(Report::decode(request.body.as_slice()).unwrap());
            }
            answer(request, &snapshot(2, 1))
        }
    });
    let attachment = attach_to(&[format!("http://{}", server.address())]);
    let mut totals = Totals::default();
    totals.counts.set(Count::Routed.statistic(), "", 7);
    attachment.pool().set_totals(totals);
    eventually("a report", || reports.lock().unwrap().last().is_some_and(|report| report.routed == 7));
    let report = reports.lock().unwrap()[0].clone();
    assert_eq!(report.proxy, "envoy-1");
}
