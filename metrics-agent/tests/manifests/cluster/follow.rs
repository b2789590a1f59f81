//! The plan that follows the objects.

use core::time::Duration;
use std::sync::Arc;

use metrics_agent_catalogue::watch::PlanWatch;
use metrics_agent_sources::kubernetes::{ClusterObject, ObjectsResult};
use metrics_agent_support::runtime::{ResultCounter, Tasks};
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::sync::watch;

use super::fixture::{OLD, cluster, named, objective, pool, settings};

/// Longer than a burst.
const SETTLED: Duration = Duration::from_secs(1);

struct Followed {
    objects: watch::Sender<ObjectsResult>,
    watch: PlanWatch,
    _tasks: Tasks,
}

impl Followed {
    fn start(manifests: Option<std::path::PathBuf>) -> Self {
        let (objects, receiver) = watch::channel(Err("not listed yet: pods".to_owned()));
        let (tasks, _) = Tasks::new();
        let reads = ResultCounter::register(&mut Registry::default(), "x", "x");
        let watch = PlanWatch::of_cluster(receiver, settings(), manifests, &tasks, reads);
        Self { objects, watch, _tasks: tasks }
    }

    fn set(&self, objects: impl IntoIterator<Item = ClusterObject>) {
        let _ = self.objects.send_replace(Ok(Arc::new(cluster(objects))));
    }
}

#[tokio::test(start_paused = true)]
async fn a_burst_is_one_plan_and_a_new_status_is_none() {
    let followed = Followed::start(None);
    let mut plans = followed.watch.plans();
    tokio::time::sleep(SETTLED).await;
    assert_eq!(plans.borrow_and_update().as_ref().unwrap_err().to_string(), "not listed yet: pods");
    followed.set([]);
    plans.changed().await.unwrap();
    assert_eq!(plans.borrow_and_update().as_ref().unwrap().pools.len(), 0);
    for count in 1..=5 {
        followed.set((0..count).map(|index| pool("n", &format!("p{index}"), OLD)));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let mut versions = 0;
    while tokio::time::timeout(SETTLED, plans.changed()).await.is_ok() {
        versions += 1;
        plans.borrow_and_update();
    }
    assert!((1..=2).contains(&versions), "{versions}");
    assert_eq!(named(plans.borrow().as_ref().unwrap()).len(), 5);
    let before = plans.borrow_and_update().clone().unwrap();
    followed.set((0..5).map(|index| {
        let mut pool = pool("n", &format!("p{index}"), OLD);
        pool.resource_version = "2".to_owned();
        pool.json["status"] = json!({"parents": []});
        pool
    }));
    tokio::time::sleep(SETTLED).await;
    assert!(!plans.has_changed().unwrap() && Arc::ptr_eq(&before, plans.borrow().as_ref().unwrap()));
}

#[tokio::test(start_paused = true)]
async fn refusals_are_published_once_for_each_change() {
    let followed = Followed::start(None);
    let mut refusals = followed.watch.refusals();
    let objective = |priority| {
        let mut objective = objective("n", "o", "p", 1);
        objective.json["spec"]["priority"] = priority;
        objective.generation = None;
        objective.resource_version = objective.json.to_string();
        objective
    };
    followed.set([pool("n", "p", OLD), objective(json!("high"))]);
    refusals.changed().await.unwrap();
    assert_eq!(refusals.borrow_and_update().len(), 1);
    // Another object changes, and the refused one stays as it is.
    followed.set([pool("n", "p", OLD), pool("n", "q", OLD), objective(json!("high"))]);
    tokio::time::sleep(SETTLED).await;
    assert!(!refusals.has_changed().unwrap());
    followed.set([pool("n", "p", OLD), objective(json!("higher"))]);
    refusals.changed().await.unwrap();
    assert!(refusals.borrow_and_update()[0].reasons[0].contains("higher"));
    followed.set([pool("n", "p", OLD), objective(json!(1))]);
    refusals.changed().await.unwrap();
    assert_eq!(refusals.borrow().len(), 0);
}

#[tokio::test]
async fn a_mounted_file_is_read_beside_the_objects_and_refused_as_a_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.yaml");
    let write = |text: &str| {
        let new = directory.path().join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, &path).unwrap();
    };
    let config = |plugin: &str| {
        format!("apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{{type: {plugin}}}]\n")
    };
    write(&config("queue-scorer"));
    let followed = Followed::start(Some(path.clone()));
    followed.set([pool("team-a", "p", OLD)]);
    let plugin = |plan: &metrics_agent_catalogue::Plan| {
        let config = plan.pools.first()?.policy.picker_config.as_ref()?;
        Some(config.plugins.first()?.r#type.clone())
    };
    let mut plans = followed.watch.plans();
    let mut wait_for = async |expected: &str| {
        let found =
            plans.wait_for(|plan| plan.as_ref().is_ok_and(|plan| plugin(plan).as_deref() == Some(expected)));
        tokio::time::timeout(crate::harness::DEADLINE, found).await.expect(expected).unwrap().clone().unwrap()
    };
    wait_for("queue-scorer").await;
    let mut refusals = followed.watch.refusals();
    write(&config("no-such-scorer"));
    let refused = refusals.wait_for(|refusals| refusals.len() == 1);
    let refused =
        tokio::time::timeout(crate::harness::DEADLINE, refused).await.expect("refused").unwrap().clone();
    assert!(
        refused[0].earlier_in_force && refused[0].source.to_string().contains("config.yaml"),
        "{refused:?}"
    );
    write(&config("random-picker"));
    wait_for("random-picker").await;
}
