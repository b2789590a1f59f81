//! The hooks as a gRPC service.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tonic::{Request, Response, Status, async_trait};

use super::status::SharedStatus;
use crate::hooks::{self, Translation};
use crate::schema::envoy_gateway_extension_server::{EnvoyGatewayExtension, EnvoyGatewayExtensionServer};
use crate::schema::{
    PostClusterModifyRequest, PostClusterModifyResponse, PostEndpointsModifyRequest,
    PostEndpointsModifyResponse, PostRouteModifyRequest, PostRouteModifyResponse, PostTranslateModifyRequest,
    PostTranslateModifyResponse,
};
use crate::settings::HookSettings;
use crate::weights::Weights;

/// Maximum number of bytes of a message: everything of one Gateway is one message. `maxMessageSize` of Envoy
/// Gateway should be the same.
const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;

/// The hooks for one connection of Envoy Gateway. The weights of one hook are for a later hook of the same
/// connection.
#[derive(Debug)]
pub struct HookService {
    settings: Arc<HookSettings>,
    status: SharedStatus,
    weights: Mutex<Weights>,
}

impl HookService {
    /// The service of a new connection.
    pub fn new(settings: Arc<HookSettings>, status: SharedStatus) -> EnvoyGatewayExtensionServer<Self> {
        EnvoyGatewayExtensionServer::new(Self { settings, status, weights: Mutex::default() })
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(usize::MAX)
    }
}

/// A hook returns an error only when it cannot run at all: Envoy Gateway would not call it again until an
/// object changes.
#[async_trait]
impl EnvoyGatewayExtension for HookService {
    async fn post_route_modify(
        &self,
        request: Request<PostRouteModifyRequest>,
    ) -> Result<Response<PostRouteModifyResponse>, Status> {
        self.status.update(|status| status.calls.route += 1);
        let PostRouteModifyRequest { route, post_route_context } = request.into_inner();
        let route = hooks::route(&self.settings, &route, &post_route_context);
        Ok(Response::new(PostRouteModifyResponse { route: route.map(Bytes::from) }))
    }

    async fn post_endpoints_modify(
        &self,
        request: Request<PostEndpointsModifyRequest>,
    ) -> Result<Response<PostEndpointsModifyResponse>, Status> {
        self.status.update(|status| status.calls.endpoints += 1);
        if let Err(error) = self.weights.lock().insert(&request.into_inner().load_assignment) {
            tracing::warn!(%error, "endpoints of Envoy Gateway are not read, so the weights of pools may be equal");
        }
        Ok(Response::new(PostEndpointsModifyResponse { load_assignment: None }))
    }

    async fn post_cluster_modify(
        &self,
        _: Request<PostClusterModifyRequest>,
    ) -> Result<Response<PostClusterModifyResponse>, Status> {
        // The last hook makes the clusters, with the routes that need them.
        Ok(Response::new(PostClusterModifyResponse { cluster: None }))
    }

    async fn post_translate_modify(
        &self,
        request: Request<PostTranslateModifyRequest>,
    ) -> Result<Response<PostTranslateModifyResponse>, Status> {
        let PostTranslateModifyRequest { clusters, secrets, listeners, routes } = request.into_inner();
        self.status.update(|status| {
            status.calls.translation += 1;
            let largest = &mut status.largest_translation;
            largest.listeners = largest.listeners.max(listeners.len());
            largest.routes = largest.routes.max(routes.len());
            largest.clusters = largest.clusters.max(clusters.len());
        });
        let translation = Translation { clusters, listeners, routes };
        let (settings, weights) = (Arc::clone(&self.settings), self.end_translation());
        // Apart from the threads that scrape and serve the API: a large Gateway takes milliseconds.
        let translated =
            tokio::task::spawn_blocking(move || hooks::translate(&settings, &weights, translation));
        let Translation { clusters, listeners, routes } =
            translated.await.map_err(|error| Status::internal(error.to_string()))?;
        Ok(Response::new(PostTranslateModifyResponse { clusters, secrets, listeners, routes }))
    }
}

impl HookService {
    /// The weights of this translation.
    fn end_translation(&self) -> Weights {
        let mut weights = self.weights.lock();
        let current = weights.clone();
        weights.end_translation();
        current
    }
}
