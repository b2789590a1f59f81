//! Random pools, and requests that reach them one after the other while readings change.

use core::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine};
use endpoint_picker::pool::reading::{GPU_UTILIZATION, Lora, Reading, ServedModel};
use endpoint_picker::pool::{Endpoint, Endpoints};
use proptest::collection::vec;
use proptest::option::{of, weighted};
use proptest::prelude::*;
use proptest::sample::select;

/// A client's request.
#[derive(Clone, Debug)]
pub(crate) struct RequestSpec {
    pub(crate) model: &'static str,
    pub(crate) salt: Option<&'static str>,
    pub(crate) prompt: Prompt,
    pub(crate) max_output_tokens: Option<u64>,
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    /// `ip:port` of the endpoints that may be chosen, or anything else.
    pub(crate) subset: Option<Vec<String>>,
    pub(crate) priority: i32,
}

#[derive(Clone, Debug)]
pub(crate) enum Prompt {
    Nothing,
    /// One or several prompts of a completion.
    Texts(Vec<String>),
    Ids(Vec<u32>),
    /// A chat of one message.
    Image {
        text: String,
        url: String,
    },
}

/// A request, and what happens before it.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) passes: Duration,
    /// Endpoints (modulo the pool's size) with a new reading, and its age.
    pub(crate) updates: Vec<(usize, Reading, Option<Duration>)>,
    /// Whether the agent keeps silent.
    pub(crate) silence: bool,
    /// Requests in flight (from the oldest) of which the response begins, and of which it ends.
    pub(crate) begin: usize,
    pub(crate) end: usize,
    /// Endpoints that failed recently.
    pub(crate) failed: Vec<usize>,
    pub(crate) spec: RequestSpec,
}

pub(crate) fn pools() -> impl Strategy<Value = Endpoints> {
    let roles = ["decode", "prefill", "encode", "both", "prefill-decode", "encode-prefill-decode", "x"];
    let labels = (
        weighted(0.6, select(roles.to_vec())),
        of(select(vec!["a", "b", "c"])),
        of(select(vec!["0-64", "100-400", "200-200", "10-20000", "x", "7", "9-1"])),
        of(select(vec!["0-200", "60-300", "-"])),
    );
    vec(labels, 1..13).prop_map(|all| {
        let endpoints = all.into_iter().enumerate().map(|(n, (role, zone, length, range))| {
            let labels = [
                ("llm-d.ai/role", role),
                ("zone", zone),
                ("llm-d.ai/context-length-range", length),
                ("range", range),
            ];
            let labels =
                labels.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())));
            // Two ranks to a server.
            let address =
                ([10, 0, 0, u8::try_from(n / 2).unwrap()], 8000 + u16::try_from(n % 2).unwrap()).into();
            Endpoint::new(format!("default/pod-{n}"), address, labels.collect())
        });
        Endpoints::new("default".to_owned(), endpoints.collect()).unwrap()
    })
}

/// Readings; `odd` numbers are those that servers should never report.
pub(crate) fn readings(odd: Vec<f64>) -> impl Strategy<Value = Reading> {
    let usages = [vec![0.0, 0.1, 0.25, 0.5, 0.7, 0.8, 0.95, 1.0], odd].concat();
    let adapters = || prop::sample::subsequence(vec!["m", "n", "o"], 0..4);
    let lora = (adapters(), adapters(), 0..5_u32).prop_map(|(running, waiting, max)| {
        let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        Lora { running: owned(running), waiting: owned(waiting), max }
    });
    let served = prop::sample::subsequence(vec![("m", false), ("n", true), ("base", false)], 0..4).prop_map(
        |models| {
            models.into_iter().map(|(id, is_adapter)| ServedModel { id: id.to_owned(), is_adapter }).collect()
        },
    );
    let requests = || weighted(0.85, prop_oneof![9 => 0..8_u64, 3 => 0..60_u64, 1 => Just(u64::MAX)]);
    (
        prop::bool::weighted(0.9),
        requests(),
        requests(),
        weighted(0.85, select(usages)),
        of(lora),
        of(select(vec![0, 16, 64, 80, 128])),
        (of(select(vec![0, 3, 9, 5000])), weighted(0.3, select(vec![0, 500, 60_000]))),
        of(select(vec![0.0, 0.3, 0.9, 1.0])),
        of(served),
    )
        .prop_map(
            |(
                ready,
                waiting,
                running,
                kv_usage,
                lora,
                block_size,
                (num_blocks, cache_tokens),
                gpu,
                models,
            )| {
                Reading {
                    ready,
                    updated: None,
                    waiting,
                    running,
                    kv_usage,
                    lora,
                    block_size,
                    num_blocks,
                    cache_tokens,
                    cached_since: None,
                    attributes: gpu.map(|share| (GPU_UTILIZATION.to_owned(), share)).into_iter().collect(),
                    models,
                }
            },
        )
}

/// Values that are numbers still, and are compared as such.
pub(crate) fn odd_numbers() -> Vec<f64> {
    vec![-0.5, 1.5, 1e300, f64::INFINITY, f64::NEG_INFINITY]
}

pub(crate) fn steps(odd: Vec<f64>) -> impl Strategy<Value = Step> {
    let ages = select(vec![0, 60, 190, 210, 5_000, 7_000, 400_000]).prop_map(Duration::from_millis);
    let passes = select(vec![0, 50, 150, 4_000, 9_000, 11_000, 60_000, 60_000, 301_000])
        .prop_map(Duration::from_millis);
    let updates = vec((0..12_usize, readings(odd), weighted(0.9, ages)), 0..8);
    let failed = prop_oneof![3 => Just(vec![]), 1 => vec(0..12_usize, 1..8)];
    (passes, updates, prop::bool::weighted(0.15), 0..3_usize, 0..2_usize, failed, specs()).prop_map(
        |(passes, updates, silence, begin, end, failed, spec)| Step {
            passes,
            updates,
            silence,
            begin,
            end,
            failed,
            spec,
        },
    )
}

fn specs() -> impl Strategy<Value = RequestSpec> {
    let subset = vec(0..15_usize, 0..5).prop_map(|listed| {
        let entry = |n: usize| match n {
            12.. => ["10.0.0.1", "10.0.0.9:80", "nonsense"][n - 12].to_owned(),
            n => format!("10.0.0.{}:{}", n / 2, 8000 + n % 2),
        };
        listed.into_iter().map(entry).collect()
    });
    (
        select(vec!["m", "m", "m", "n", "base", ""]),
        weighted(0.1, Just("salt")),
        prompts(),
        of(select(vec![0, 5, 5_000])),
        headers(),
        weighted(0.25, subset),
        select(vec![0, 0, 5, -1, -1]),
    )
        .prop_map(|(model, salt, prompt, max_output_tokens, headers, subset, priority)| RequestSpec {
            model,
            salt,
            prompt,
            max_output_tokens,
            headers,
            subset,
            priority,
        })
}

/// Few beginnings and lengths, so that prompts share blocks.
fn prompts() -> impl Strategy<Value = Prompt> {
    let text = || {
        (select(vec!["a", "b", "<é>"]), 0..14_usize, 1..9_usize).prop_map(|(unit, length, tail)| {
            (0..length).map(|n| format!("{n}{unit} ").repeat(30)).collect::<String>() + &"xyzxyzxyz"[tail..]
        })
    };
    prop_oneof![
        1 => Just(Prompt::Nothing),
        8 => text().prop_map(|text| Prompt::Texts(vec![text])),
        2 => vec(text(), 2..4).prop_map(Prompt::Texts),
        1 => (1..300_u32).prop_map(|count| Prompt::Ids((0..count).collect())),
        1 => (text(), select(vec!["http://a/1", "http://a/2"]))
            .prop_map(|(text, url)| Prompt::Image { text, url: url.to_owned() }),
    ]
}

fn headers() -> impl Strategy<Value = Vec<(String, Vec<u8>)>> {
    let token = (0..14_usize).prop_map(|n| BASE64_STANDARD.encode(format!("default/pod-{n}")));
    let session = select(vec!["one", "two", " one ", "", "  "]);
    let text = |text: String| text.into_bytes();
    let one = prop_oneof![
        2 => token.prop_map(move |token| ("x-session-token", text(token))),
        1 => Just(("x-session-token", b"%%".to_vec())),
        1 => Just(("x-mine", BASE64_STANDARD.encode("default/pod-0").into_bytes())),
        4 => session.prop_map(|id| ("x-session-id", id.as_bytes().to_vec())),
        2 => select(vec!["one", " one ", ""]).prop_map(|id| ("session-id", id.as_bytes().to_vec())),
        2 => select(vec!["one", "three"]).prop_map(|id| ("x-other", id.as_bytes().to_vec())),
        3 => select(vec!["sid=one", "a=b; sid= two ;c", "sid=", "side=x"])
            .prop_map(|cookie| ("cookie", cookie.as_bytes().to_vec())),
        3 => select(vec![&b"a"[..], b"b", b"", b"\xff"]).prop_map(|zone| ("x-zone", zone.to_vec())),
        2 => select(vec!["if-available", "wait=1, If-Available", "if-available=1", "respond-async"])
            .prop_map(|preference| ("prefer", preference.as_bytes().to_vec())),
        4 => select(vec!["30", "2000.5", "0", "soon"]).prop_map(|limit| ("x-llm-d-slo-ttft-ms", limit.as_bytes().to_vec())),
        3 => select(vec!["0.25", "40", "-1"]).prop_map(|limit| ("x-slo-tpot-ms", limit.as_bytes().to_vec())),
        2 => select(vec!["10.0.0.0, 10.0.0.1:8000,[10.0.0.2]:8001,10.0.0.3", "10.0.0.0:8001,10.0.0.0:8000", "x"])
            .prop_map(|named| ("test-epp-endpoint-selection", named.as_bytes().to_vec())),
        2 => select(vec!["other", "decode", "unknown", " "]).prop_map(|name| ("epp-profile", name.as_bytes().to_vec())),
    ];
    // Each request has an id, by which a source of KV blocks is drawn.
    let id = any::<u32>().prop_map(|id| ("x-request-id", id.to_string().into_bytes()));
    (vec(one, 0..4), id).prop_map(|(headers, id)| {
        headers.into_iter().chain([id]).map(|(name, value)| (name.to_owned(), value)).collect()
    })
}
