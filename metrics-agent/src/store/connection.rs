//! A connection to a store.

use core::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, ErrorKind, Pipeline, RedisError, RedisFuture,
    RedisResult, TlsCertificates, Value,
};

use super::{NodeRole, StoreAddress};

/// The time to reach a node.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection to one server, or to the servers of a cluster.
#[derive(Clone)]
pub(crate) enum StoreConnection {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl StoreConnection {
    /// Connects to a store. A response may take up to `response_timeout`.
    pub(crate) async fn open(address: &StoreAddress, response_timeout: Duration) -> RedisResult<Self> {
        let StoreAddress { nodes, kind, authorities } = address;
        let authorities = match authorities {
            Some(file) => {
                let pem = tokio::fs::read(file).await;
                Some(pem.map_err(|error| {
                    let problem = format!("{} cannot be read: {error}", file.display());
                    RedisError::from((ErrorKind::InvalidClientConfig, "--share-ca", problem))
                })?)
            }
            None => None,
        };
        let certificates = authorities.map(|pem| TlsCertificates { client_tls: None, root_cert: Some(pem) });
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(response_timeout));
        match kind {
            NodeRole::Single => {
                let node = nodes.first().ok_or_else(no_node)?.clone();
                let client = match certificates {
                    Some(certificates) => Client::build_with_tls(node, certificates)?,
                    None => Client::open(node)?,
                };
                Ok(Self::Server(client.get_multiplexed_async_connection_with_config(&config).await?))
            }
            NodeRole::Cluster => {
                let builder = ClusterClientBuilder::new(nodes.clone())
                    .connection_timeout(CONNECT_TIMEOUT)
                    .response_timeout(response_timeout)
                    .retries(1);
                let builder = certificates.into_iter().fold(builder, ClusterClientBuilder::certs);
                Ok(Self::Cluster(builder.build()?.get_async_connection().await?))
            }
            NodeRole::Sentinels(service) => {
                let mut client = sentinel(nodes, service, certificates)?;
                Ok(Self::Server(client.get_async_connection_with_config(&config).await?))
            }
        }
    }
}

/// The client of a service whose primary the sentinels name. Its servers have the sentinels' credentials and
/// TLS.
fn sentinel(
    nodes: &[ConnectionInfo],
    service: &str,
    certificates: Option<TlsCertificates>,
) -> RedisResult<redis::sentinel::SentinelClient> {
    let first = nodes.first().ok_or_else(no_node)?;
    let addresses = nodes.iter().map(|node| node.addr().clone());
    let mut builder = SentinelClientBuilder::new(addresses, service, SentinelServerType::Master)?;
    let settings = first.redis_settings();
    builder = builder.set_client_to_redis_db(settings.db());
    if let Some(user) = settings.username() {
        builder = builder.set_client_to_redis_username(user).set_client_to_sentinel_username(user);
    }
    if let Some(password) = settings.password() {
        builder = builder.set_client_to_redis_password(password).set_client_to_sentinel_password(password);
    }
    if matches!(first.addr(), redis::ConnectionAddr::TcpTls { .. }) {
        builder = builder
            .set_client_to_redis_tls_mode(redis::TlsMode::Secure)
            .set_client_to_sentinel_tls_mode(redis::TlsMode::Secure);
        if let Some(certificates) = certificates {
            builder = builder
                .set_client_to_redis_certificates(certificates.clone())
                .set_client_to_sentinel_certificates(certificates);
        }
    }
    builder.build()
}

fn no_node() -> RedisError {
    RedisError::from((ErrorKind::InvalidClientConfig, "the store has no node"))
}

impl ConnectionLike for StoreConnection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::Server(server) => server.req_packed_command(cmd),
            Self::Cluster(cluster) => cluster.req_packed_command(cmd),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::Server(server) => server.req_packed_commands(pipeline, offset, count),
            Self::Cluster(cluster) => cluster.req_packed_commands(pipeline, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::Server(server) => server.get_db(),
            Self::Cluster(cluster) => cluster.get_db(),
        }
    }
}
