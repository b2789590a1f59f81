//! Several agents.

use std::sync::Mutex;

use crate::fixture::{Current, agent, attach_to, eventually, eventually_has, snapshot};
use crate::server::{Reply, Server, free_port};

#[test]
fn the_next_agent_is_used_when_one_hangs_or_cannot_be_reached() {
    let hangs = Server::start(|_| Reply::Hang);
    let closed = free_port().local_addr().unwrap();
    let current = Current::new(Mutex::new(snapshot(2, 1)));
    let works = Server::start(agent(&current));
    let addresses = [hangs.address(), closed, works.address()].map(|address| format!("http://{address}"));
    let attachment = attach_to(&addresses);
    eventually_has(&attachment, 2, 1);
    assert_eq!(attachment.pool().take_polls().failed, 2);
    *current.lock().unwrap() = snapshot(2, 2);
    eventually_has(&attachment, 2, 2);
    assert_eq!(attachment.pool().take_polls().failed, 0, "the agent that works stays in use");
}

#[test]
fn agents_with_different_snapshots_take_over_from_each_other() {
    let [one, other] = [2, 3].map(|endpoints| Current::new(Mutex::new(snapshot(endpoints, 7))));
    let first = Server::start(agent(&one));
    let second = Server::start(agent(&other));
    let addresses = [first.address(), second.address()].map(|address| format!("http://{address}"));
    let attachment = attach_to(&addresses);
    eventually_has(&attachment, 2, 7);
    let address = first.address();
    drop(first);
    eventually_has(&attachment, 3, 7);
    let _first = Server::on(std::net::TcpListener::bind(address).unwrap(), None, agent(&one));
    drop(second);
    eventually_has(&attachment, 2, 7);
    eventually("failed polls are counted", || attachment.pool().take_polls().failed >= 2);
}
