//! Pools without an agent.

use endpoint_picker_engine::static_pool::StaticPool;
use endpoint_picker_native::agent::PoolHandle;
use endpoint_picker_native::config::ModuleConfig;
use serde_json::json;

use crate::fixture::unique_pool;

/// The pool of a configuration that lists these endpoints.
fn listing(pool: &str, endpoints: &[&str]) -> StaticPool {
    let json = json!({"pool": pool, "endpoints": endpoints}).to_string();
    ModuleConfig::parse(json.as_bytes()).unwrap().unwrap().engine.static_pool().unwrap()
}

/// The addresses by which a pool decides.
fn addresses(handle: &PoolHandle) -> Vec<String> {
    let view = handle.pool().view();
    view.pool().as_slice().iter().map(|endpoint| endpoint.printed_address().to_owned()).collect()
}

#[test]
fn configurations_of_a_name_share_the_pool_and_the_newest_list_counts() {
    let name = unique_pool();
    let attach = || PoolHandle::new(&name, None, "envoy-1").unwrap();
    let (one, two) = (["10.0.0.1:80", "10.0.0.2:80"], ["10.0.0.2:80", "10.0.0.3:80"]);
    let older = attach();
    assert!(older.pool().view().versions().is_none());
    older.set(&listing(&name, &one));
    assert_eq!(addresses(&older), one, "at once");
    let newer = attach();
    assert!(core::ptr::eq(older.pool(), newer.pool()));
    newer.set(&listing(&name, &two));
    assert_eq!(
        (addresses(&older), addresses(&newer)),
        (two.map(str::to_owned).into(), two.map(str::to_owned).into())
    );
    // A configuration that is taken back while the newer one is in use.
    older.set(&listing(&name, &one));
    assert_eq!(addresses(&newer), one);
    drop(older);
    assert_eq!(addresses(&newer), one);
}
