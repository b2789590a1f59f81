//! A DNS server whose answers a test sets.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::Mutex;

use async_trait::async_trait;
use hickory_server::Server;
use hickory_server::net::runtime::Time;
use hickory_server::proto::op::{Header, HeaderCounts, Metadata, ResponseCode};
use hickory_server::proto::rr::{RData, Record, RecordType};
use hickory_server::server::{Request, RequestHandler, ResponseHandler, ResponseInfo};
use hickory_server::zone_handler::MessageResponseBuilder;
use metrics_agent::sources::names::Resolver;
use tempfile::TempDir;
use tokio::net::UdpSocket;

/// Seconds for which an answer holds.
const TTL: u32 = 1;

/// The answers for a name, by the type of the query. Other names do not exist.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// These addresses.
    Addresses(Vec<IpAddr>),
    /// `SERVFAIL`.
    Fails,
    /// `SERVFAIL` for addresses of IPv4, and these of IPv6.
    FailsForIpv4(Vec<IpAddr>),
}

#[derive(Clone, Debug, Default)]
struct Zone(Arc<Mutex<ZoneState>>);

#[derive(Debug, Default)]
struct ZoneState {
    replies: BTreeMap<String, Reply>,
    queries: usize,
}

/// A DNS server, and the files of a host that asks it.
pub(crate) struct NameServer {
    zone: Zone,
    address: SocketAddr,
    folder: TempDir,
    _server: Server<Zone>,
}

impl NameServer {
    /// Serves no names yet. The search domain is `test`.
    pub(crate) async fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let zone = Zone::default();
        let mut server = Server::new(zone.clone());
        server.register_socket(socket);
        let folder = tempfile::tempdir().unwrap();
        let resolv_conf = "search other.test test\nnameserver 127.0.0.1\noptions timeout:1 attempts:1\n";
        std::fs::write(folder.path().join("resolv.conf"), resolv_conf).unwrap();
        Self { zone, address, folder, _server: server }
    }

    /// Sets the answer for a name.
    pub(crate) fn set(&self, name: &str, reply: Reply) {
        self.zone.0.lock().unwrap().replies.insert(name.to_owned(), reply);
    }

    /// Sets the addresses of a name.
    pub(crate) fn set_addresses(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
        self.set(name, Reply::Addresses(addresses));
    }

    /// Lets a name no longer exist.
    pub(crate) fn remove(&self, name: &str) {
        self.zone.0.lock().unwrap().replies.remove(name);
    }

    /// The number of queries so far.
    pub(crate) fn queries(&self) -> usize {
        self.zone.0.lock().unwrap().queries
    }

    /// Writes the hosts file.
    pub(crate) fn set_hosts_file(&self, text: &str) {
        std::fs::write(self.folder.path().join("hosts"), text).unwrap();
    }

    /// Lets a host ask this server.
    pub(crate) fn resolver(&self) -> Resolver {
        let file = |name| self.folder.path().join(name);
        Resolver { resolv_conf: file("resolv.conf"), hosts: file("hosts"), port: self.address.port() }
    }
}

impl Zone {
    fn reply(&self, name: &str) -> Option<Reply> {
        let mut state = self.0.lock().unwrap();
        state.queries += 1;
        state.replies.get(name).cloned()
    }
}

#[async_trait]
impl RequestHandler for Zone {
    async fn handle_request<R: ResponseHandler, T: Time>(
        &self,
        request: &Request,
        mut response: R,
    ) -> ResponseInfo {
        let mut metadata = Metadata::response_from_request(&request.metadata);
        let info = request.request_info().unwrap();
        let (name, record_type) = (info.query.name().to_string(), info.query.query_type());
        let addresses = match self.reply(name.trim_end_matches('.')) {
            Some(Reply::Addresses(addresses)) => addresses,
            Some(Reply::FailsForIpv4(addresses)) if record_type == RecordType::AAAA => addresses,
            Some(Reply::Fails | Reply::FailsForIpv4(_)) => {
                metadata.response_code = ResponseCode::ServFail;
                vec![]
            }
            None => {
                metadata.response_code = ResponseCode::NXDomain;
                vec![]
            }
        };
        let data = addresses.into_iter().map(RData::from).filter(|data| data.record_type() == record_type);
        let record = |data| Record::from_rdata(info.query.original().name().clone(), TTL, data);
        let records: Vec<_> = data.map(record).collect();
        let message =
            MessageResponseBuilder::from_message_request(request).build(metadata, &records, [], [], []);
        match response.send_response(message).await {
            Ok(sent) => sent,
            Err(_) => Header { metadata, counts: HeaderCounts::default() }.into(),
        }
    }
}
