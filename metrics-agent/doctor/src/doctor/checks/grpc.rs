//! Checks of pools whose clients call methods of gRPC.

use super::super::health::ServerHealth;
use super::super::report::Finding;
use crate::doctor::Facts;

/// Clusters that speak HTTP/1.1 to servers of gRPC.
pub(super) fn clusters(facts: &Facts) -> Option<Vec<Finding>> {
    let of_grpc = facts.picking().filter_map(|picking| {
        let pool = &picking.picker.config.pool;
        let grpc = facts.agent.pool(pool)?.grpc.as_ref()?;
        Some((picking.entry, picking.cluster?, pool, &grpc.parser))
    });
    let of_grpc: Vec<_> = of_grpc.collect();
    let http1 = of_grpc.iter().filter(|(_, cluster, ..)| !cluster.speaks_http2());
    let findings = http1.map(|(entry, cluster, pool, parser)| {
        Finding::error(
            format!("cluster {}, {}", cluster.name, entry.place),
            format!("the {parser} of pool {pool} reads gRPC, and the cluster speaks HTTP/1.1 to the servers: calls fail"),
            "set explicit_http_config: {http2_protocol_options: {}} in its HttpProtocolOptions, as examples/grpc; for a gateway, appProtocol: \
             kubernetes.io/h2c of the InferencePool",
        )
    });
    (!of_grpc.is_empty()).then(|| findings.collect())
}

/// Servers that do not serve.
pub(super) fn servers(facts: &Facts) -> Option<Vec<Finding>> {
    let findings = facts.health.iter().flat_map(|(pool, servers)| {
        servers.iter().filter_map(move |(address, health)| {
            unhealthy(format!("pool {pool}, endpoint {address}"), health)
        })
    });
    (!facts.health.is_empty()).then(|| findings.collect())
}

fn unhealthy(place: String, health: &ServerHealth) -> Option<Finding> {
    let finding = match health {
        ServerHealth::Serving => return None,
        ServerHealth::NotServing => Finding::error(
            place,
            "the server does not serve, by grpc.health.v1, and is picked all the same",
            "see its log; in Kubernetes give its pod a readinessProbe of gRPC, so that it is picked only while it serves",
        ),
        ServerHealth::NotGrpc(reason) => Finding::error(
            place,
            format!("the endpoint does not speak gRPC without TLS: {reason}"),
            "let the pool have the port of gRPC (targetPorts), or give the cluster a transport_socket if the server has TLS",
        ),
        ServerHealth::Unknown(status) => Finding::warning(
            place,
            format!("whether the server serves is not known: grpc.health.v1 returns {status}"),
            "see its log",
        ),
        ServerHealth::Unreachable(reason) => Finding::warning(
            place,
            format!("whether the server serves is not known: it cannot be reached from here: {reason}"),
            "start the server, or run the doctor where servers can be reached, such as in the agent's pod",
        ),
    };
    Some(finding)
}
