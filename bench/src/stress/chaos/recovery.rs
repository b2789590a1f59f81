//! When the full rules are back.

use crate::load::senders::Sender;
use crate::stress::proxies::Proxies;
use endpoint_picker_harness::client;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::SERVED_BY;
use futures_util::future::join_all;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Fresh prompts in a row that prove a choice: by chance alone, five go to one of four servers once in a
/// thousand times.
const IN_A_ROW: usize = 5;
/// How long to wait for the full rules.
pub(crate) const GIVE_UP: Duration = Duration::from_secs(30);
/// Its requests are dispatched before all others that wait in a queue.
pub(super) const URGENT: Sender = Sender { band: 0, tenant: 0 };
const PAUSE: Duration = Duration::from_millis(5);

/// Makes this server the best by its metrics. Returns the time until the first of five requests in a row to
/// each proxy that went there was answered, at most [`GIVE_UP`].
pub(super) async fn until_preferred(proxies: &Proxies, best: usize) -> Duration {
    let begin = Instant::now();
    set_queues(proxies, |server| if server == best { 0 } else { 5 });
    let expected = proxies.servers()[best].endpoint();
    let each = proxies.stacks().iter().map(|stack| until_preferred_by(stack, &expected, begin));
    let slowest = join_all(each).await.into_iter().max().unwrap_or_default();
    set_queues(proxies, |_| 0);
    slowest
}

async fn until_preferred_by(proxy: &Stack, expected: &str, begin: Instant) -> Duration {
    let client = client::http1();
    let (mut hits, mut first) = (0, GIVE_UP);
    while hits < IN_A_ROW && begin.elapsed() < GIVE_UP {
        let request = client.post(proxy.url("/v1/chat/completions")).json(&client::chat(&fresh_prompt()));
        let request = URGENT.headers().fold(request, |request, (name, value)| request.header(name, value));
        let answer = request.timeout(Duration::from_secs(1)).send().await;
        let is_hit = answer.is_ok_and(|answer| {
            answer.headers().get(SERVED_BY).is_some_and(|name| name.as_bytes() == expected.as_bytes())
        });
        if is_hit && hits == 0 {
            first = begin.elapsed();
        }
        hits = if is_hit { hits + 1 } else { 0 };
        tokio::time::sleep(PAUSE).await;
    }
    if hits == IN_A_ROW { first } else { GIVE_UP }
}

fn set_queues(proxies: &Proxies, queue: impl Fn(usize) -> u64) {
    for (index, server) in proxies.servers().iter().enumerate() {
        server.update_metrics(|metrics| metrics.waiting = queue(index));
    }
}

/// A prompt whose beginning no server has cached.
pub(super) fn fresh_prompt() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("{:08} {}", COUNT.fetch_add(1, Ordering::Relaxed), "is everything as it should be? ".repeat(20))
}
