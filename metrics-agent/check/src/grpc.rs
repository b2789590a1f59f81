//! Warnings about pools of servers that speak gRPC.

use metrics_agent_catalogue::PoolPlan;
use metrics_agent_catalogue::grpc::GrpcPool;
use metrics_agent_catalogue::plan::AppProtocol;

pub(super) fn warnings(pool: &PoolPlan) -> Vec<String> {
    let Some(GrpcPool { parser, readers }) = GrpcPool::of_policy(&pool.policy) else {
        let unread = "appProtocol is kubernetes.io/h2c, and no parser reads gRPC: gateways speak HTTP/2 to the servers, and calls of gRPC pass \
            unread; name vllmgrpc-parser or vertexai-parser in requestHandler.parsers if the servers speak gRPC, otherwise set appProtocol: http";
        let is_unread = pool.app_protocol == Some(AppProtocol::H2c);
        return is_unread.then(|| unread.to_owned()).into_iter().collect();
    };
    let parser = parser.type_name();
    let protocol = (pool.app_protocol == Some(AppProtocol::Http)).then(|| {
        format!(
            "{parser} reads gRPC, and appProtocol is http: gateways speak HTTP/1.1 to the servers, and calls fail; set spec.appProtocol of the \
             InferencePool to kubernetes.io/h2c"
        )
    });
    let is_unscraped = pool.is_scraped_at_own_port() && !readers.is_empty();
    let metrics = is_unscraped.then(|| {
        let readers = readers.join(", ");
        format!(
            "the metrics for {readers} are scraped at the endpoints' own port, where servers of {parser} have none; give a \
             metrics-data-source the port that has them, or decide without, as examples/grpc/picker.yaml"
        )
    });
    protocol.into_iter().chain(metrics).collect()
}
