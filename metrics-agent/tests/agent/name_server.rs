//! A DNS server whose replies a test sets.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use endpoint_picker_harness::dns::{self, DnsServer, RecordType, ResponseCode};
use metrics_agent_sources::names::Resolver;
use tempfile::TempDir;
use tokio::net::UdpSocket;

/// The replies for a name, by the type of the query. Other names do not exist.
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
    _server: DnsServer<Zone>,
}

impl NameServer {
    /// Serves no names yet. The search domain is `test`.
    pub(crate) async fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let zone = Zone::default();
        let server = DnsServer::start(socket, zone.clone());
        let folder = tempfile::tempdir().unwrap();
        let resolv_conf = "search other.test test\nnameserver 127.0.0.1\noptions timeout:1 attempts:1\n";
        std::fs::write(folder.path().join("resolv.conf"), resolv_conf).unwrap();
        Self { zone, address, folder, _server: server }
    }

    /// Sets the reply for a name.
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

impl dns::Zone for Zone {
    const TTL: u32 = 1;

    fn addresses(&self, name: &str, record_type: RecordType) -> Result<Vec<IpAddr>, ResponseCode> {
        let mut state = self.0.lock().unwrap();
        state.queries += 1;
        match state.replies.get(name) {
            Some(Reply::Addresses(addresses)) => Ok(addresses.clone()),
            Some(Reply::FailsForIpv4(addresses)) if record_type == RecordType::AAAA => Ok(addresses.clone()),
            Some(Reply::Fails | Reply::FailsForIpv4(_)) => Err(ResponseCode::ServFail),
            None => Err(ResponseCode::NXDomain),
        }
    }
}
