//! A recorded request, decided again by the filter's own rules, with a snapshot and nothing else to go by:
//! `metrics-agent explain`.

mod result;
mod scene;
mod table;

use endpoint_picker::cycle::Headers;
use endpoint_picker_wire::v1;

pub use self::result::{Asked, ExplainError, Explained};
use self::scene::Scene;

/// Decides a request by a snapshot that has a topology.
pub fn explain(mut snapshot: v1::Snapshot, asked: &Asked) -> Result<Explained, ExplainError> {
    let kv_usage_metrics = core::mem::take(&mut snapshot.kv_usage_metrics);
    let mut scene = Scene::of(snapshot).map_err(ExplainError)?;
    let headers = Headers(&asked.headers);
    for (body, endpoint) in &asked.before {
        scene.remember(asked, headers, body, *endpoint)?;
    }
    let told = scene.tell(asked, headers);
    Ok(Explained { path: asked.path.clone(), seed: asked.seed, kv_usage_metrics, pool: scene.pool, told })
}
