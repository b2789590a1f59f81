//! Agents that respond wrongly, or not at all.

use std::collections::VecDeque;
use std::sync::Mutex;

use crate::fixture::{Current, agent, answer, attach_to, eventually, eventually_has, snapshot};
use crate::server::{Reply, Server, free_port};

fn of_length(head: &str, body: usize) -> Reply {
    Reply::Bytes([format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n").into_bytes(), vec![b'x'; body]].concat())
}

#[test]
fn every_wrong_answer_is_a_failed_poll_and_the_next_good_one_counts() {
    let wrong = VecDeque::from([
        Reply::Answer(500, b"broken".to_vec()),
        Reply::Answer(200, b"not a snapshot".to_vec()),
        Reply::Answer(302, vec![]),
        Reply::Bytes(b"garbage that is not HTTP\r\n\r\n".to_vec()),
        Reply::Bytes(vec![]),
        // Less than it announces.
        of_length("content-length: 1000", 10),
        // More than is read, announced and not announced.
        of_length("content-length: 17825793", 17 << 20 | 1),
        of_length("connection: close", 17 << 20),
        of_length(&format!("x-large: {}", "x".repeat(20 << 10)), 0),
    ]);
    let count = wrong.len() as u64;
    let wrong = Mutex::new(wrong);
    let server = Server::start(move |request| {
        let next = if request.is_report() { None } else { wrong.lock().unwrap().pop_front() };
        next.unwrap_or_else(|| answer(request, &snapshot(2, 1)))
    });
    let attachment = attach_to(&[format!("http://{}", server.address())]);
    eventually_has(&attachment, 2, 1);
    // A poll is counted after its snapshot is in use.
    let (mut failed, mut published) = (0, 0);
    eventually("the good response is counted", || {
        let polls = attachment.pool().take_polls();
        failed += polls.failed;
        published += polls.published;
        published > 0
    });
    assert_eq!((failed, published), (count, 1));
}

#[test]
fn a_snapshot_of_an_unknown_plugin_leaves_the_last_one_in_use() {
    let current = Current::new(Mutex::new(snapshot(2, 1)));
    let server = Server::start(agent(&current));
    let attachment = attach_to(&[format!("http://{}", server.address())]);
    eventually_has(&attachment, 2, 1);
    let mut unusable = snapshot(3, 2);
    let plugin = endpoint_picker_wire::v1::Plugin {
        name: "x".to_owned(),
        r#type: "magic-scorer".to_owned(),
        parameters: "{}".to_owned(),
    };
    let policy = unusable.topology.as_mut().unwrap().policy.as_mut().unwrap();
    policy.picker_config.get_or_insert_default().plugins.push(plugin);
    *current.lock().unwrap() = unusable;
    eventually("a failed poll", || attachment.pool().take_polls().failed > 0);
    assert_eq!(attachment.pool().view().pool().as_slice().len(), 2);
    *current.lock().unwrap() = snapshot(4, 3);
    eventually_has(&attachment, 4, 3);
}

#[test]
fn an_agent_that_restarts_is_polled_again() {
    let current = Current::new(Mutex::new(snapshot(2, 1)));
    let server = Server::start(agent(&current));
    let address = server.address();
    let attachment = attach_to(&[format!("http://{address}")]);
    eventually_has(&attachment, 2, 1);
    drop(server);
    eventually("a failed poll", || attachment.pool().take_polls().failed > 0);
    assert!(attachment.pool().view().versions().is_some(), "the last snapshot stays");
    *current.lock().unwrap() = snapshot(3, 1);
    let listener = std::net::TcpListener::bind(address).unwrap();
    let _server = Server::on(listener, None, agent(&current));
    eventually_has(&attachment, 3, 1);
}

#[test]
fn dropping_the_last_attachment_ends_a_poll_that_hangs() {
    let server = Server::start(|_| Reply::Hang);
    let attachment = attach_to(&[format!("http://{}", server.address())]);
    eventually("a connection", || server.open() > 0);
    drop(attachment);
    eventually("no connection", || server.open() == 0);
}

#[test]
fn a_server_that_accepts_and_never_reads_is_a_failed_poll() {
    let listener = free_port();
    let attachment = attach_to(&[format!("http://{}", listener.local_addr().unwrap())]);
    eventually("a failed poll", || attachment.pool().take_polls().failed > 0);
}
