//! Looks host names up as the system does: in the hosts file, then by the name servers and search domains of
//! resolv.conf.

use core::time::Duration;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Instant;

use hickory_resolver::config::{LookupIpStrategy, ResolveHosts, ResolverConfig};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::lookup_ip::LookupIp;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::{Query, ResponseCode};
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::system_conf::parse_resolv_conf;
use hickory_resolver::{Hosts, Resolver as Client, TokioResolver};
use metrics_agent_support::files::{self, ReadError};
use tokio::time::timeout;

use super::HostName;
use super::table::{Answer, LookupFailure};

/// Maximum time of a lookup, with all name servers, attempts and search domains.
const LIMIT: Duration = Duration::from_secs(10);

/// Time for which addresses of the hosts file hold.
const HOSTS_TTL: Duration = Duration::from_secs(5);

/// The name server of a host without resolv.conf, as in resolv.conf(5).
const DEFAULT_SERVER: &str = "nameserver 127.0.0.1";

/// Where names are looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolver {
    /// Name servers and search domains; read for each lookup.
    pub resolv_conf: PathBuf,
    /// Names with their addresses, which precede the addresses of the name servers; read for each lookup.
    pub hosts: PathBuf,
    /// The port of the name servers.
    pub port: u16,
}

impl Default for Resolver {
    fn default() -> Self {
        Self { resolv_conf: "/etc/resolv.conf".into(), hosts: "/etc/hosts".into(), port: 53 }
    }
}

impl Resolver {
    /// The addresses of a name, or why there are none. `last` are its last addresses.
    pub(crate) async fn lookup(
        &self,
        host: &HostName,
        last: &BTreeSet<IpAddr>,
    ) -> Result<Answer, LookupFailure> {
        let limited = timeout(LIMIT, self.resolve(host, last)).await;
        let answer =
            limited.unwrap_or_else(|_| Err(format!("no answer within {} s", LIMIT.as_secs()).into()))?;
        if answer.addresses.is_empty() { Err(LookupFailure::denial(NO_ADDRESS)) } else { Ok(answer) }
    }

    async fn resolve(&self, host: &HostName, last: &BTreeSet<IpAddr>) -> Result<Answer, LookupFailure> {
        let name = Name::from_utf8(host.as_str()).map_err(|error| error.to_string())?;
        let addresses = in_hosts_file(&read(&self.hosts).await?, &name)?;
        if !addresses.is_empty() {
            return Ok(Answer { addresses, ttl: HOSTS_TTL });
        }
        let client = self.client(&read(&self.resolv_conf).await?)?;
        let found = client.lookup_ip(name).await.map_err(|error| failure(&error))?;
        let mut addresses: BTreeSet<_> = found.iter().map(|ip| ip.to_canonical()).filter(is_host).collect();
        addresses.extend(kept_family(&client, &found, &addresses, last).await);
        Ok(Answer { addresses, ttl: found.valid_until().saturating_duration_since(Instant::now()) })
    }

    /// A client for this resolv.conf. It caches nothing, because a name is looked up again when its TTL is
    /// over.
    fn client(&self, resolv_conf: &[u8]) -> Result<TokioResolver, String> {
        let refused = |error: NetError| format!("{}: {error}", self.resolv_conf.display());
        let text = String::from_utf8_lossy(resolv_conf);
        let has_server = text.lines().any(|line| line.trim_start().starts_with("nameserver"));
        let text = if has_server { text } else { format!("{text}\n{DEFAULT_SERVER}\n").into() };
        let (config, mut options) = parse_resolv_conf(text.as_bytes()).map_err(refused)?;
        options.use_hosts_file = ResolveHosts::Never;
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        options.cache_size = 0;
        let builder = Client::builder_with_config(self.adapted(config), TokioRuntimeProvider::default());
        builder.with_options(options).build().map_err(refused)
    }

    /// The configuration with the port of the name servers. The host's own domain counts only without search
    /// domains, as in libc.
    fn adapted(&self, config: ResolverConfig) -> ResolverConfig {
        let (domain, search, mut servers) = config.into_parts();
        for connection in servers.iter_mut().flat_map(|server| &mut server.connections) {
            connection.port = self.port;
        }
        ResolverConfig::from_parts(domain.filter(|_| search.is_empty()), search, servers)
    }
}

/// Last addresses of the family whose lookup failed. A lookup of both families succeeds when one does, so a
/// family without addresses that had some is looked up once more.
async fn kept_family(
    client: &TokioResolver,
    found: &LookupIp,
    addresses: &BTreeSet<IpAddr>,
    last: &BTreeSet<IpAddr>,
) -> BTreeSet<IpAddr> {
    for (is_family, record_type) in
        [(IpAddr::is_ipv4 as fn(&IpAddr) -> bool, RecordType::A), (IpAddr::is_ipv6, RecordType::AAAA)]
    {
        if !last.iter().any(is_family) || addresses.iter().any(is_family) {
            continue;
        }
        return match client.lookup(found.query().name().clone(), record_type).await {
            Ok(lookup) => {
                lookup.answers().iter().filter_map(|record| record.data.ip_addr()).filter(is_host).collect()
            }
            Err(NetError::Dns(DnsError::NoRecordsFound(_))) => BTreeSet::new(),
            Err(_) => last.iter().copied().filter(is_family).collect(),
        };
    }
    BTreeSet::new()
}

/// The addresses of a name in the hosts file.
fn in_hosts_file(text: &[u8], name: &Name) -> Result<BTreeSet<IpAddr>, String> {
    let mut hosts = Hosts::default();
    hosts.read_hosts_conf(text).map_err(|error| format!("the hosts file: {error}"))?;
    let query = |record_type| hosts.lookup_static_host(&Query::query(name.clone(), record_type));
    let lookups = [RecordType::A, RecordType::AAAA].into_iter().filter_map(query);
    let ip = |lookup: Lookup| -> Vec<IpAddr> {
        lookup.answers().iter().filter_map(|record| record.data.ip_addr()).collect()
    };
    Ok(lookups.flat_map(ip).filter(is_host).collect())
}

/// Whether a host can have this address.
fn is_host(ip: &IpAddr) -> bool {
    !ip.is_unspecified() && !ip.is_multicast() && *ip != IpAddr::V4(Ipv4Addr::BROADCAST)
}

/// The problem of a name that exists without an address (NODATA).
const NO_ADDRESS: &str = "the name has no address";

impl LookupFailure {
    fn denial(problem: &str) -> Self {
        Self { problem: problem.to_owned(), is_denial: true }
    }
}

impl From<String> for LookupFailure {
    /// A failure that says nothing about the name.
    fn from(problem: String) -> Self {
        Self { problem, is_denial: false }
    }
}

/// The reason of a failed lookup.
fn failure(error: &NetError) -> LookupFailure {
    let problem = match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) => match none.response_code {
            ResponseCode::NXDomain => return LookupFailure::denial("no such name (NXDOMAIN)"),
            ResponseCode::NoError => return LookupFailure::denial(NO_ADDRESS),
            code => format!("the name server answered: {code}"),
        },
        NetError::Dns(DnsError::ResponseCode(ResponseCode::ServFail)) => {
            "the name server failed (SERVFAIL)".to_owned()
        }
        NetError::Dns(DnsError::ResponseCode(code)) => format!("the name server answered: {code}"),
        NetError::Timeout => "no name server answered".to_owned(),
        error => error.to_string(),
    };
    problem.into()
}

/// A file of the system; empty if there is none.
async fn read(path: &Path) -> Result<Vec<u8>, String> {
    let file = path.to_owned();
    let reading = tokio::task::spawn_blocking(move || files::read(&file));
    match reading.await.map_err(|error| error.to_string())? {
        Err(ReadError::Io(error)) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        read => read.map_err(|error| format!("{} {error}", path.display())),
    }
}
