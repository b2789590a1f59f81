//! Changes that a pool exchanges with other proxies.

use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use endpoint_picker::pool::Endpoint;
use endpoint_picker::pool::load::Load;
use endpoint_picker_engine::ledger::{Change, ChangeKind, Ledger};
use endpoint_picker_engine::worker_pool::store::PoolStore;
use endpoint_picker_wire::changes::{Changes, Delivery, EndpointLoad, Feed, Position, Sync};
use endpoint_picker_wire::{CHANGES_FORMAT, Message};

use crate::fixture::{answer, attach_to, eventually, eventually_has, snapshot};
use crate::server::{Reply, Request, Server, free_port};

const ONE: Load = Load { requests: 1, tokens: 100 };

/// An agent that records syncs, and returns the message of another proxy while there is one.
#[derive(Clone, Default)]
struct Agent {
    syncs: Arc<Mutex<Vec<Sync>>>,
    message: Arc<Mutex<Option<Changes>>>,
}

impl Agent {
    fn start(&self) -> Server {
        let agent = self.clone();
        Server::start(move |request| agent.reply(request))
    }

    fn reply(&self, request: &Request) -> Reply {
        if !request.path.ends_with("/changes") {
            return answer(request, &snapshot(2, 1));
        }
        let sync = Sync::decode(request.body.as_slice()).unwrap();
        assert!(request.has("content-type: application/x-protobuf"));
        let position =
            Position { feed: 9, next: sync.positions.first().map_or(1, |position| position.next + 1) };
        self.syncs.lock().unwrap().push(sync);
        let message = self.message.lock().unwrap().as_mut().map(|message| {
            message.sequence += 1;
            Delivery { age_ms: 0, changes: message.encode_to_vec().into() }
        });
        let feed = Feed {
            format: CHANGES_FORMAT,
            position: Some(position),
            deliveries: message.into_iter().collect(),
            ..Feed::default()
        };
        Reply::Answer(200, feed.encode_to_vec())
    }

    /// The loads that the proxy has sent so far: requests by endpoint.
    fn sent_loads(&self) -> Vec<(u64, u64)> {
        let syncs = self.syncs.lock().unwrap();
        let messages = syncs.iter().filter_map(|sync| sync.changes.clone());
        let loads = messages.flat_map(|message| Changes::decode(message).unwrap().loads);
        loads.map(|load| (load.endpoint, load.requests)).collect()
    }
}

#[test]
fn loads_of_another_proxy_count_until_it_is_silent_and_own_ones_are_sent() {
    let agent = Agent::default();
    let server = agent.start();
    let attachment = attach_to(&[format!("http://{}", server.address())]);
    let view = eventually_has(&attachment, 2, 1);
    let keys: Vec<u64> = view.pool().as_slice().iter().map(Endpoint::key).collect();
    let loads = || attachment.pool().read(|ledger| ledger.loads().to_vec());
    let mut store = attachment.new_store();
    store.apply(vec![Change::Endpoint { endpoint: keys[0], kind: ChangeKind::Started(ONE) }].into());
    eventually("the own load is sent", || agent.sent_loads().contains(&(keys[0], 1)));
    let load = EndpointLoad { endpoint: keys[1], requests: 1, tokens: 100 };
    *agent.message.lock().unwrap() = Some(Changes {
        format: CHANGES_FORMAT,
        sender: 5,
        epoch: 1,
        has_all_loads: true,
        loads: vec![load],
        ..Changes::default()
    });
    eventually("the other proxy's load counts", || loads() == [ONE, ONE]);
    assert_eq!(attachment.pool().read(|ledger| ledger.own_loads().collect::<Vec<_>>())[1], Load::default());
    *agent.message.lock().unwrap() = None;
    eventually("the other proxy's load is dropped", || loads() == [ONE, Load::default()]);
    drop(store);
    eventually("the end is sent", || agent.sent_loads().last() == Some(&(keys[0], 0)));
    assert_eq!(attachment.pool().read(Ledger::requests_in_flight), 0);
    let syncs = agent.syncs.lock().unwrap();
    assert!(syncs.windows(2).all(|pair| pair[0].sender == pair[1].sender));
    assert_eq!(syncs[1].positions, [Position { feed: 9, next: 1 }]);
}

#[test]
fn an_agent_that_hangs_does_not_keep_loads_of_vanished_proxies() {
    let agent = Agent::default();
    let hangs = Arc::new(Mutex::new(false));
    let server = {
        let (agent, hangs) = (agent.clone(), Arc::clone(&hangs));
        Server::start(move |request| if *hangs.lock().unwrap() { Reply::Hang } else { agent.reply(request) })
    };
    let attachment = attach_to(&[format!("http://{}", server.address())]);
    let view = eventually_has(&attachment, 2, 1);
    let load = EndpointLoad { endpoint: view.pool().as_slice()[1].key(), requests: 1, tokens: 100 };
    *agent.message.lock().unwrap() = Some(Changes {
        format: CHANGES_FORMAT,
        sender: 5,
        epoch: 1,
        has_all_loads: true,
        loads: vec![load],
        ..Changes::default()
    });
    let in_flight = || attachment.pool().read(Ledger::requests_in_flight);
    eventually("the other proxy's load counts", || in_flight() == 1);
    *hangs.lock().unwrap() = true;
    eventually("it is dropped", || in_flight() == 0);
}

#[test]
fn changes_go_to_the_first_agent_of_the_list_again_when_it_is_back() {
    let (first, second) = (Agent::default(), Agent::default());
    let port = free_port();
    let address = port.local_addr().unwrap();
    drop(port);
    let server = second.start();
    let attachment = attach_to(&[format!("http://{address}"), format!("http://{}", server.address())]);
    eventually_has(&attachment, 2, 1);
    let count = |agent: &Agent| agent.syncs.lock().unwrap().len();
    eventually("the second agent takes changes", || count(&second) > 3);
    let back = Server::on(TcpListener::bind(address).unwrap(), None, {
        let first = first.clone();
        move |request| first.reply(request)
    });
    eventually("the first agent takes them again", || count(&first) > 3);
    let before = count(&second);
    eventually("and goes on to take them", || count(&first) > 30);
    assert_eq!(count(&second), before);
    drop((attachment, back));
}
