//! Filter configurations that come and go.

use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use endpoint_picker_native::agent::wakes;
use serde_json::json;

use crate::fixture::{answer, attach, direct, eventually, eventually_has, snapshot, unique_pool};
use crate::server::Server;

#[test]
fn configurations_of_one_pool_share_its_state_and_the_last_one_ends_the_polls() {
    let polls = Arc::new(AtomicU64::new(0));
    let server = Server::start({
        let polls = Arc::clone(&polls);
        move |request| {
            polls.fetch_add(1, Ordering::SeqCst);
            answer(request, &snapshot(2, 1))
        }
    });
    let pool = unique_pool();
    let access = direct(&[format!("http://{}", server.address())], &json!({}));
    let first = attach(&pool, &access);
    let view = eventually_has(&first, 2, 1);
    let second = attach(&pool, &access);
    assert!(Arc::ptr_eq(&view, &second.pool().view()), "one state");
    assert!(server.open() <= 2, "one thread for snapshots, and one for changes");
    drop(first);
    let before = polls.load(Ordering::SeqCst);
    eventually("further polls", || polls.load(Ordering::SeqCst) > before);
    drop(second);
    eventually("no connection", || server.open() == 0);
    let third = attach(&pool, &access);
    assert!(third.pool().view().versions().is_none(), "a new state");
    eventually_has(&third, 2, 1);
}

#[test]
fn another_pool_or_agent_is_another_state() {
    let server = Server::start(|request| answer(request, &snapshot(2, 1)));
    let other = Server::start(|request| answer(request, &snapshot(3, 1)));
    let [one, two] =
        [&server, &other].map(|server| direct(&[format!("http://{}", server.address())], &json!({})));
    let pool = unique_pool();
    let attachments = [attach(&pool, &one), attach(&pool, &two), attach(&unique_pool(), &one)];
    for (attachment, endpoints) in attachments.iter().zip([2, 3, 2]) {
        eventually_has(attachment, endpoints, 1);
    }
}

#[test]
fn every_configuration_is_woken_once_a_second_also_while_the_agent_holds_polls() {
    let server = Server::start(|request| {
        if request.path.contains("/snapshot") {
            thread::sleep(Duration::from_millis(50));
        }
        answer(request, &snapshot(2, 1))
    });
    let pool = unique_pool();
    let access = direct(&[format!("http://{}", server.address())], &json!({}));
    let woken: [Arc<AtomicU64>; 2] = Default::default();
    let _attachment = attach(&pool, &access);
    let subscriptions = woken.each_ref().map(|woken| {
        let woken = Arc::clone(woken);
        let wake = move || {
            woken.fetch_add(1, Ordering::SeqCst);
        };
        wakes::subscribe(Box::new(wake))
    });
    eventually("two calls each", || woken.iter().all(|woken| woken.load(Ordering::SeqCst) >= 2));
    let [first, second] = subscriptions;
    drop(first);
    let ended = woken[0].load(Ordering::SeqCst);
    let before = woken[1].load(Ordering::SeqCst);
    eventually("two further calls", || woken[1].load(Ordering::SeqCst) >= before + 2);
    assert_eq!(woken[0].load(Ordering::SeqCst), ended, "not after its end");
    drop(second);
}
