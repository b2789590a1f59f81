//! When the full rules are back.

use endpoint_picker_harness::client;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::SERVED_BY;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// By chance alone, five fresh prompts in a row go to one of four servers once in a thousand times.
const IN_A_ROW: usize = 5;
/// How long to wait for the full rules.
pub(crate) const GIVE_UP: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(5);

/// Makes this server the best by its metrics. Returns the time until the first of five requests in a row that went there was
/// answered, at most [`GIVE_UP`].
pub(crate) async fn until_preferred(stack: &Stack, best: usize) -> Duration {
    let begin = Instant::now();
    set_queues(stack, |server| if server == best { 0 } else { 5 });
    let client = client::http1();
    let expected = stack.servers()[best].endpoint();
    let mut hits = 0;
    let mut first = GIVE_UP;
    while hits < IN_A_ROW && begin.elapsed() < GIVE_UP {
        let request = client.post(stack.url("/v1/chat/completions")).json(&client::chat(&fresh_prompt()));
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
    set_queues(stack, |_| 0);
    if hits == IN_A_ROW { first } else { GIVE_UP }
}

fn set_queues(stack: &Stack, queue: impl Fn(usize) -> u64) {
    for (index, server) in stack.servers().iter().enumerate() {
        server.update_metrics(|metrics| metrics.waiting = queue(index));
    }
}

/// A prompt whose beginning no server has cached.
fn fresh_prompt() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("{:08} {}", COUNT.fetch_add(1, Ordering::Relaxed), "is everything as it should be? ".repeat(20))
}
