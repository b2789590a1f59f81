//! Pods that come, go and change under load, through Envoy Gateway's Envoy.

use endpoint_picker_harness::Filter;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_kube::{Answers, GatewayGround, Installation, Load};
use std::cell::Cell;
use std::time::{Duration, Instant};

const CLIENTS: usize = 4;
const PAUSE: Duration = Duration::from_millis(5);

/// Requests in a row of which none goes to a pod that the agents have left out: a worker that picks it still
/// is met by one of them.
const IN_A_ROW: usize = 48;

/// A time in which a pod is not of the pool.
struct Absence {
    pod: String,
    from: Instant,
    /// When requests had left the pod: from here on it must get none.
    left: Instant,
    until: Instant,
}

#[tokio::test]
async fn no_request_is_lost_while_pods_change_behind_the_wasm_filter() {
    pods_change_under_load(Filter::Wasm).await;
}

#[tokio::test]
async fn no_request_is_lost_while_pods_change_behind_the_native_filter() {
    pods_change_under_load(Filter::Native).await;
}

async fn pods_change_under_load(filter: Filter) {
    let ground = GatewayGround::shared().await;
    let installation = Installation::new(ground, filter, 3).await;
    let load = Load::start(&installation.url("/v1/chat/completions"), CLIENTS, PAUSE);
    let mut absences = Vec::new();

    // Created.
    installation.scale(4).await;
    let ready = installation.until_ready(4).await;

    // Unready, and ready again.
    for pod in ready.iter().take(3) {
        absences.push(unready_for_a_while(ground, &installation, pod).await);
    }

    // Relabelled: the pod stays ready, but it is of the pool no longer, and the Deployment keeps it.
    let pod = ready.last().unwrap();
    installation.kubectl(&["label", "pod", pod, "app=other", "--overwrite"]).await.unwrap();
    let from = Instant::now();
    let left = until_left(&installation, pod).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    absences.push(Absence { pod: pod.clone(), from, left, until: Instant::now() });
    installation.kubectl(&["label", "pod", pod, "app=model-server", "--overwrite"]).await.unwrap();

    // Deleted; the Deployment makes another.
    let pod = &ready[0];
    installation.kubectl(&["delete", "pod", pod, "--wait=false"]).await.unwrap();
    let from = Instant::now();
    let left = until_left(&installation, pod).await;
    let ready = installation.until_ready(4).await;
    absences.push(Absence { pod: pod.clone(), from, left, until: Instant::now() });

    // Fewer.
    installation.scale(2).await;
    installation.until_ready(2).await;
    let answers = load.stop().await;
    answers.assert_none_lost();
    check(&answers, &absences);
    for pod in ready {
        assert!(answers.by_pod().contains_key(pod.as_str()), "{pod} got no request: {:?}", answers.by_pod());
    }
    installation.remove().await;
}

/// Waits until no agent has the pod for a candidate, and then until [`IN_A_ROW`] requests in a row go to
/// other pods; returns when the first of these was sent. The row alone is no proof: a pod that is slow for a
/// while gets none either.
async fn until_left(installation: &Installation<'_>, pod: &str) -> Instant {
    installation.until_no_candidate(pod).await;
    let row = Cell::new(None);
    eventually(&format!("requests leave {pod}"), async || {
        let load = Load::start(&installation.url("/v1/chat/completions"), CLIENTS, PAUSE);
        let now = Instant::now();
        tokio::time::sleep(Duration::from_millis(100)).await;
        let answers = load.stop().await;
        let by_pod = answers.by_pod();
        let (begin, before) = row.get().unwrap_or((now, 0));
        let count = before + by_pod.values().sum::<usize>();
        row.set((!by_pod.contains_key(pod)).then_some((begin, count)));
        if row.get().is_some() && count >= IN_A_ROW { Ok(begin) } else { Err(format!("{by_pod:?}")) }
    })
    .await
}

/// Closes the pod's readiness gate for a second, from when requests have left the pod.
async fn unready_for_a_while(ground: &GatewayGround, installation: &Installation<'_>, pod: &str) -> Absence {
    installation.set_gate(pod, false).await;
    let changed = async |is_ready: bool| {
        eventually(&format!("{pod} has Ready={is_ready}"), async || {
            let changes = ground.node().readiness_changes();
            let last = changes
                .iter()
                .rfind(|change| change.pod == pod && change.namespace == installation.namespace());
            last.filter(|last| last.is_ready == is_ready).map(|last| last.at).ok_or("not yet")
        })
        .await
    };
    let from = changed(false).await;
    let left = until_left(installation, pod).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let until = Instant::now();
    installation.set_gate(pod, true).await;
    changed(true).await;
    Absence { pod: pod.to_owned(), from, left, until }
}

/// Checks that a pod got no request after requests had left it, and prints how long they took to leave.
fn check(answers: &Answers, absences: &[Absence]) {
    for Absence { pod, from, left, until } in absences {
        let before = answers.sent_to(pod, *from, *left);
        let last = before.last().map(|answer| answer.sent.duration_since(*from)).unwrap_or_default();
        println!("{pod}: {} requests after the change, the last after {last:?}", before.len());
        assert!(answers.sent_to(pod, *left, *until).is_empty(), "{pod} got a request again");
    }
}
