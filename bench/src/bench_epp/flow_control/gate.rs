//! The two queues that are compared, in front of servers.

use super::objects;
use crate::bench_epp::rules::Rules;
use crate::bench_epp::running::RunningVariant;
use crate::bench_epp::variant::{Setting, USUAL_INTERVAL, Variant};
use crate::epp::PoolSource;
use anyhow::Result;
use endpoint_picker_harness::Filter;
use endpoint_picker_kube::Cluster;
use endpoint_picker_model_server::{ModelServer, ServiceTimes};
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

/// Who queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    Epp,
    Native,
}

/// A queue in front of servers of its own.
#[derive(Debug)]
pub(super) struct GatedServers {
    pub(super) running: RunningVariant,
    pub(super) servers: Vec<ModelServer>,
}

impl Gate {
    pub(super) const BOTH: [Self; 2] = [Self::Epp, Self::Native];

    pub(super) fn variant(self) -> Variant {
        match self {
            Self::Epp => Variant::Epp,
            Self::Native => Variant::Filter(Filter::Native),
        }
    }

    /// Starts servers with empty caches, and the queue in front of them.
    pub(super) async fn start(
        self,
        rules: Rules,
        servers: usize,
        times: ServiceTimes,
        epp: &Path,
        cluster: &Cluster,
    ) -> Result<GatedServers> {
        let start = |_| ModelServer::start_with_service_times("server", times);
        let servers = (0..servers).map(start).collect::<Result<Vec<_>>>()?;
        let endpoints: Vec<SocketAddr> = servers.iter().map(ModelServer::address).collect();
        let (kubeconfig, namespace);
        let pool = match self {
            Self::Native => PoolSource::File,
            Self::Epp => {
                namespace = objects::create(cluster, &rules.read()?, &endpoints).await?;
                kubeconfig = cluster.kubeconfig();
                PoolSource::Kubernetes { kubeconfig: &kubeconfig, namespace: &namespace, pool: objects::POOL }
            }
        };
        let interval = USUAL_INTERVAL;
        let setting = Setting { endpoints: &endpoints, workers: 1, rules, interval, epp: Some(epp), pool };
        let running = self.variant().start(setting).await?;
        for server in &servers {
            server.take_requests();
        }
        Ok(GatedServers { running, servers })
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Epp => "EPP",
            Self::Native => "native",
        })
    }
}
