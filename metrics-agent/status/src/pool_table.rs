//! A pool's status as a table of text.

use core::fmt::{self, Write};

use endpoint_picker_wire::figures::Figures;
use endpoint_picker_wire::statistics::{Count, Level, Statistic, shown_requests};

use crate::columns::{NOTHING, printable};
use crate::pool::UnknownPool;
use crate::pool::{
    EndpointState, EndpointStatus, LoraStatus, PoolStatus, PoolTraffic, ProxyStatus, RefusedObject,
    RefusedObjects, SharingProxyStatus, SharingStatus, TrafficStatus, UnresolvedStatus,
};
use crate::{columns, queue_table};

const HEADER: [&str; 14] = [
    "ENDPOINT",
    "STATE",
    "WAITING",
    "RUNNING",
    "KV CACHE",
    "BLOCKS",
    "BLOCK SIZE",
    "IN FLIGHT",
    "TOKENS",
    "PICKS/S",
    "ERRORS/S",
    "FIRST BYTE",
    "AGE",
    "LORA ADAPTERS",
];

impl fmt::Display for PoolStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "pool {}: {}", printable(&self.pool), self.counts())?;
        if let Some(refusal) = &self.refusal {
            writeln!(f, "every request is rejected with 503: {}", printable(refusal))?;
        }
        let [agreed, disagreed] = [Count::ShadowAgreed, Count::ShadowDisagreed].map(Count::statistic);
        if let Some((agreed, disagreed)) = self.total(agreed).zip(self.total(disagreed)) {
            writeln!(f, "{}", agreement(agreed, disagreed))?;
        }
        if self.proxies.is_empty() && !self.is_of_snapshot {
            writeln!(f, "no proxy reports on this pool: no filter uses it, or none reaches this agent")?;
        }
        self.unknown_pools.iter().try_for_each(|UnknownPool { pool, requests, age_ms }| {
            write!(
                f,
                "proxies ask for a pool that this agent does not have: {pool:?} ({requests} requests, "
            )?;
            writeln!(f, "the last one {} ago)", age(*age_ms))
        })?;
        if let Some(traffic) = &self.traffic {
            writeln!(f, "{}", traffic_line(traffic))?;
        }
        writeln!(f)?;
        columns::write(f, HEADER, self.endpoints.iter().map(row), 2..13)?;
        write_unresolved(f, &self.unresolved)?;
        if let Some(queue) = &self.queue {
            queue_table::write(f, queue)?;
        }
        if !self.proxies.is_empty() {
            writeln!(f)?;
        }
        self.proxies.iter().try_for_each(|proxy| write_proxy(f, proxy))?;
        self.sharing.iter().try_for_each(|sharing| write_sharing(f, sharing))
    }
}

/// The requests of a proxy, and a line for each mistake that they show.
fn write_proxy(f: &mut fmt::Formatter<'_>, proxy: &ProxyStatus) -> fmt::Result {
    let (mut requests, mut faults) = (Vec::new(), String::new());
    for (statistic, words, level) in shown_requests() {
        match (level, proxy.counts.total(statistic).unwrap_or(0)) {
            (Level::Good | Level::Warning, count) => requests.push(format!("{count} {words}")),
            (Level::Fault(_), 0) => {}
            (Level::Fault(fault), count) => {
                writeln!(faults, "proxy {:?}: {count} {words}: {fault}", proxy.proxy)?;
            }
        }
    }
    let (name, reported) = (&proxy.proxy, age(proxy.age_ms));
    writeln!(f, "proxy {name:?}{}: {}; reported {reported} ago", filter(proxy), requests.join(", "))?;
    f.write_str(&faults)
}

/// The form and the version of a proxy's filter, as far as they are known.
fn filter(proxy: &ProxyStatus) -> String {
    match (proxy.form, &proxy.version) {
        (Some(form), Some(version)) => format!(" ({} {})", form.name(), printable(version)),
        (Some(_) | None, _) => String::new(),
    }
}

/// Servers that are missing in the table, or in it with old addresses.
fn write_unresolved(f: &mut fmt::Formatter<'_>, unresolved: &[UnresolvedStatus]) -> fmt::Result {
    if !unresolved.is_empty() {
        writeln!(f)?;
    }
    for UnresolvedStatus { name, host, addresses, denied, problem } in unresolved {
        let consequence = match addresses {
            0 => "it was never resolved, so it has no endpoints".to_owned(),
            count if *denied => {
                format!("its last addresses serve only while no other endpoint is ready ({count})")
            }
            count => format!("its last addresses stay in use ({count})"),
        };
        let (name, host, problem) = (printable(name), printable(host), printable(problem));
        writeln!(f, "host name {host} of {name}: {problem}; {consequence}")?;
    }
    Ok(())
}

/// How far behind the proxies and the agent are with shared changes.
fn write_sharing(f: &mut fmt::Formatter<'_>, sharing: &SharingStatus) -> fmt::Result {
    if !sharing.proxies.is_empty() || sharing.store.is_some() {
        writeln!(f)?;
    }
    for SharingProxyStatus { proxy, unread, behind_ms, missed } in &sharing.proxies {
        write!(f, "shared changes: proxy {proxy:?} is {} behind ({unread} messages), ", age(*behind_ms))?;
        writeln!(f, "{missed} missed")?;
    }
    if let Some(store) = sharing.store {
        let state = if store.connected { "connected" } else { "not connected" };
        write!(f, "shared changes: store {state}, reading {} behind, ", age(store.read_behind_ms))?;
        let behind = age(store.write_behind_ms);
        writeln!(f, "writing {behind} behind ({} messages)", store.unwritten)?;
    }
    Ok(())
}

impl PoolStatus {
    fn counts(&self) -> String {
        let count =
            |state: EndpointState| self.endpoints.iter().filter(|endpoint| endpoint.state == state).count();
        let states = EndpointState::ALL.into_iter().rev().map(|state| (count(state), words(state)));
        let states = states.filter(|(count, _)| *count > 0).map(|(count, words)| format!("{count} {words}"));
        let states: Vec<_> = states.collect();
        if states.is_empty() { "no endpoints".to_owned() } else { states.join(", ") }
    }
}

fn row(endpoint: &EndpointStatus) -> [String; 14] {
    let sent = |cell: fn(&TrafficStatus) -> Option<String>| endpoint.sent.as_ref().and_then(cell);
    let texts = [
        Some(printable(&endpoint.name)),
        Some(state(endpoint)),
        endpoint.waiting.map(|count| count.to_string()),
        endpoint.running.map(|count| count.to_string()),
        endpoint.kv_usage.map(|usage| format!("{:.0} %", usage * 100.0)),
        endpoint.num_blocks.map(|count| count.to_string()),
        endpoint.block_size.map(|tokens| tokens.to_string()),
        sent(|sent| Some(sent.requests.to_string())),
        sent(|sent| Some(sent.tokens.to_string())),
        sent(|sent| sent.picks_per_second.map(|rate| format!("{rate:.1}"))),
        sent(|sent| sent.errors_per_second.map(|rate| format!("{rate:.1}"))),
        sent(|sent| sent.first_byte_ms.map(|times| response_time(times.p50))),
        endpoint.age_ms.map(age),
        endpoint.lora.as_ref().map(adapters),
    ];
    texts.map(|text| text.unwrap_or_else(|| NOTHING.to_owned()))
}

/// The state, and if it is not ready its reason and how long it has lasted.
fn state(endpoint: &EndpointStatus) -> String {
    let words = words(endpoint.state);
    let details = [endpoint.reason.as_deref().map(printable), endpoint.since_ms.map(age)];
    let details: Vec<_> = details.into_iter().flatten().collect();
    if endpoint.state == EndpointState::Ready || details.is_empty() {
        words.to_owned()
    } else {
        format!("{words} ({})", details.join(", "))
    }
}

/// The traffic of all proxies lately.
fn traffic_line(traffic: &PoolTraffic) -> String {
    let rates = shown_requests().filter(|(_, _, level)| !matches!(level, Level::Fault(_)));
    let rates = rates.map(|(statistic, words, _)| format!("{} {words}", rate(&traffic.rates, statistic)));
    let rates = rates.collect::<Vec<_>>().join(", ");
    let first_token = traffic.first_token_ms.map_or_else(
        || NOTHING.to_owned(),
        |times| format!("p50 {}, p95 {}", response_time(times.p50), response_time(times.p95)),
    );
    let hits =
        traffic.prefix_hits.map_or_else(|| NOTHING.to_owned(), |hits| format!("{:.1} %", hits * 100.0));
    format!("requests/s: {rates}; time to first token: {first_token}; prefix hits: {hits}")
}

/// A rate, by the values of its label if it has one.
fn rate(rates: &Figures<f64>, statistic: &'static Statistic) -> String {
    if statistic.shown.as_ref().is_none_or(|shown| shown.by.is_none()) {
        return rates.total(statistic).map_or_else(|| NOTHING.to_owned(), |rate| format!("{rate:.1}"));
    }
    let values = rates.by_value(statistic).filter(|(_, rate)| *rate > 0.0);
    let values: Vec<_> = values.map(|(value, rate)| format!("{rate:.1} × {value}")).collect();
    if values.is_empty() { "0.0".to_owned() } else { values.join(" and ") }
}

fn response_time(ms: f64) -> String {
    if ms < 1000.0 { format!("{ms:.0} ms") } else { format!("{:.1} s", ms / 1000.0) }
}

fn adapters(lora: &LoraStatus) -> String {
    let waiting = lora.waiting.iter().map(|name| format!("{} (waiting)", printable(name)));
    let names: Vec<_> = lora.running.iter().map(|name| printable(name)).chain(waiting).collect();
    if names.is_empty() { format!("none of {}", lora.max) } else { names.join(", ") }
}

/// The share of equal decisions, rounded down: 100 % means all.
fn agreement(agreed: u64, disagreed: u64) -> String {
    let all = agreed.saturating_add(disagreed);
    match (u128::from(agreed) * 1000).checked_div(all.into()) {
        Some(share) => format!("shadow agrees on {}.{} % of {all} requests", share / 10, share % 10),
        None => "shadow configuration has compared no requests yet".to_owned(),
    }
}

fn words(state: EndpointState) -> &'static str {
    match state {
        EndpointState::NotReady => "not ready",
        EndpointState::Failing => "failing",
        EndpointState::NoReading => "no reading",
        EndpointState::Stale => "stale",
        EndpointState::Saturated => "saturated",
        EndpointState::Ready => "ready",
    }
}

fn age(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..10_000 => format!("{:.1} s", ms as f64 / 1000.0),
        10_000..120_000 => format!("{} s", ms / 1000),
        _ => format!("{} min", ms / 60_000),
    }
}

/// One line for each, after an empty one.
impl fmt::Display for RefusedObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.count > 0 {
            writeln!(f)?;
        }
        for RefusedObject { object, reasons, earlier_in_force } in &self.objects {
            let reasons: Vec<_> = reasons.iter().map(|reason| printable(&one_line(reason))).collect();
            let in_force = if *earlier_in_force {
                "its last valid version stays in force"
            } else {
                "nothing of it is in force"
            };
            writeln!(f, "refused: {}: {}; {in_force}", printable(object), reasons.join("; "))?;
        }
        match self.count.saturating_sub(self.objects.len()) {
            0 => Ok(()),
            more => writeln!(f, "refused: {more} more"),
        }
    }
}

/// A reason, which may quote lines of YAML.
fn one_line(reason: &str) -> String {
    reason.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use endpoint_picker_wire::figures::Figure;
    use endpoint_picker_wire::statistics::{ABSTAINED, REJECTED};

    use super::*;
    use crate::pool::{FilterForm, ResponseTimes, StoreStatus};

    fn endpoint(name: &str, state: EndpointState) -> EndpointStatus {
        EndpointStatus {
            name: name.to_owned(),
            address: "10.0.0.1:8000".to_owned(),
            labels: [].into(),
            state,
            reason: None,
            since_ms: None,
            age_ms: None,
            waiting: None,
            running: None,
            kv_usage: None,
            engine: None,
            kv_usage_metric: None,
            unseen_queue: None,
            lora: None,
            block_size: None,
            num_blocks: None,
            cache_tokens: None,
            attributes: [].into(),
            sent: None,
            kv_events: None,
        }
    }

    fn counts<T: Figure>(numbers: &[(&'static Statistic, &str, T)]) -> Figures<T> {
        let mut counts = Figures::default();
        for &(statistic, value, number) in numbers {
            counts.set(statistic, value, number);
        }
        counts
    }

    fn unresolved(name: &str, addresses: usize) -> UnresolvedStatus {
        let problem = "no such name (NXDOMAIN)".to_owned();
        let denied = name == "default/d:8000";
        UnresolvedStatus { name: name.to_owned(), host: "vllm".to_owned(), addresses, denied, problem }
    }

    #[test]
    fn a_missing_value_is_a_dash() {
        let busy = EndpointStatus {
            age_ms: Some(1250),
            waiting: Some(12),
            running: Some(3),
            kv_usage: Some(0.426),
            block_size: Some(16),
            num_blocks: Some(27_120),
            lora: Some(LoraStatus {
                running: vec!["sql".to_owned()],
                waiting: vec!["de".to_owned()],
                max: 4,
            }),
            sent: Some(TrafficStatus {
                picks: 9,
                picks_per_second: Some(2.25),
                requests: 4,
                tokens: 1300,
                failing: false,
                errors_per_second: Some(0.25),
                first_byte_ms: Some(ResponseTimes { p50: 42.4, p95: 1234.0 }),
                ..TrafficStatus::default()
            }),
            ..endpoint("default/a", EndpointState::Saturated)
        };
        let (reason, since_ms) = (Some("connection\u{1b} refused".to_owned()), Some(41_900));
        let new = EndpointStatus { reason, since_ms, ..endpoint("default/new", EndpointState::NoReading) };
        let endpoints = vec![busy, new];
        let store = StoreStatus { connected: true, read_behind_ms: 4, unwritten: 0, write_behind_ms: 0 };
        let sharing = SharingStatus {
            proxies: vec![SharingProxyStatus {
                proxy: "envoy-1".to_owned(),
                unread: 3,
                behind_ms: 20,
                missed: 0,
            }],
            store: Some(store),
        };
        let pool = PoolStatus {
            pool: "p".to_owned(),
            endpoints,
            unresolved: vec![
                unresolved("default/b:8000", 0),
                unresolved("default/c:8000", 2),
                unresolved("default/d:8000", 1),
            ],
            is_of_snapshot: true,
            sharing: Some(sharing),
            ..PoolStatus::default()
        };
        let expected = "\
pool p: 1 saturated, 1 no reading

ENDPOINT     STATE                                   WAITING  RUNNING  KV CACHE  BLOCKS  BLOCK SIZE  IN FLIGHT  TOKENS  PICKS/S  ERRORS/S  FIRST BYTE    AGE  LORA ADAPTERS
default/a    saturated                                    12        3      43 %   27120          16          4    1300      2.2       0.2       42 ms  1.2 s  sql, de (waiting)
default/new  no reading (connection\u{fffd} refused, 41 s)        -        -         -       -           -          -       -        -         -           -      -  -

host name vllm of default/b:8000: no such name (NXDOMAIN); it was never resolved, so it has no endpoints
host name vllm of default/c:8000: no such name (NXDOMAIN); its last addresses stay in use (2)
host name vllm of default/d:8000: no such name (NXDOMAIN); its last addresses serve only while no other endpoint is ready (1)

shared changes: proxy \"envoy-1\" is 20 ms behind (3 messages), 0 missed
shared changes: store connected, reading 4 ms behind, writing 0 ms behind (0 messages)
";
        assert_eq!(pool.to_string(), expected);
    }

    /// Counters without labels come first in the table of statistics, so one more breaks none of these texts.
    #[test]
    fn requests_are_shown_in_words_by_what_became_of_them() {
        let proxy = ProxyStatus {
            proxy: "envoy-1".to_owned(),
            age_ms: 300,
            counts: counts(&[
                (Count::Routed.statistic(), "", 41),
                (Count::ServedElsewhere.statistic(), "", 4),
                (&ABSTAINED, "", 1),
                (&REJECTED, "429", 2),
                (&REJECTED, "503", 3),
            ]),
            version: Some("1.2.3".to_owned()),
            form: Some(FilterForm::Wasm),
            ..ProxyStatus::default()
        };
        let pool = PoolStatus {
            proxies: vec![proxy],
            traffic: Some(PoolTraffic {
                rates: counts(&[
                    (Count::Routed.statistic(), "", 27.96),
                    (Count::ServedElsewhere.statistic(), "", 0.0),
                    (&ABSTAINED, "", 0.0),
                    (&REJECTED, "429", 1.5),
                    (&REJECTED, "503", 0.0),
                ]),
                first_token_ms: Some(ResponseTimes { p50: 120.4, p95: 2_345.0 }),
                prefix_hits: Some(0.6321),
            }),
            ..PoolStatus::default()
        }
        .to_string();
        let proxy = "proxy \"envoy-1\"";
        for text in [
            "requests/s: 28.0 routed, ",
            ", 0.0 left to Envoy, 1.5 × 429 rejected; ",
            "; time to first token: p50 120 ms, p95 2.3 s; prefix hits: 63.2 %\n",
            &format!("\n\n{proxy} (wasm 1.2.3): 41 routed, "),
            ", 1 left to Envoy, 5 rejected; reported 300 ms ago\n",
            &format!("{proxy}: 4 served elsewhere: Envoy does not follow the picks\n"),
        ] {
            assert!(pool.contains(text), "{text:?} is not in {pool}");
        }
    }

    #[test]
    fn control_characters_in_names_are_replaced() {
        let pool = PoolStatus {
            endpoints: vec![endpoint("\u{1b}[2Jx", EndpointState::Ready)],
            ..PoolStatus::default()
        };
        assert!(!pool.to_string().contains('\u{1b}'), "{pool}");
    }

    #[test]
    fn agreement_is_of_all_proxies_with_a_shadow() {
        let proxy = |shadow: Option<(u64, u64)>| ProxyStatus {
            counts: shadow.map_or_else(Figures::default, |(agreed, disagreed)| {
                counts(&[
                    (Count::ShadowAgreed.statistic(), "", agreed),
                    (Count::ShadowDisagreed.statistic(), "", disagreed),
                ])
            }),
            ..ProxyStatus::default()
        };
        let line = |proxies: &[Option<(u64, u64)>]| {
            let proxies = proxies.iter().copied().map(proxy).collect();
            let pool = PoolStatus { pool: "p".to_owned(), proxies, ..PoolStatus::default() }.to_string();
            pool.lines().nth(1).unwrap().to_owned()
        };
        assert_eq!(line(&[None]), "");
        assert_eq!(line(&[Some((0, 0))]), "shadow configuration has compared no requests yet");
        assert_eq!(
            line(&[Some((9000, 345)), None, Some((3000, 0))]),
            "shadow agrees on 97.2 % of 12345 requests"
        );
        assert_eq!(line(&[Some((9999, 1))]), "shadow agrees on 99.9 % of 10000 requests");
        assert_eq!(line(&[Some((7, 0))]), "shadow agrees on 100.0 % of 7 requests");
        let most = format!("shadow agrees on 100.0 % of {} requests", u64::MAX);
        assert_eq!(line(&[Some((u64::MAX, 1)), Some((u64::MAX, u64::MAX))]), most);
    }

    #[test]
    fn a_pool_that_no_proxy_reports_on_is_said_to_be_unused() {
        let unknown = UnknownPool { pool: "defualt".to_owned(), requests: 12, age_ms: 300 };
        let pool =
            PoolStatus { pool: "default".to_owned(), unknown_pools: vec![unknown], ..PoolStatus::default() };
        let expected = "\
pool default: no endpoints
no proxy reports on this pool: no filter uses it, or none reaches this agent
proxies ask for a pool that this agent does not have: \"defualt\" (12 requests, the last one 300 ms ago)
";
        assert!(pool.to_string().starts_with(expected), "{pool}");
        let of_snapshot = PoolStatus { is_of_snapshot: true, unknown_pools: vec![], ..pool };
        assert!(!of_snapshot.to_string().contains("proxy"), "{of_snapshot}");
    }

    #[test]
    fn an_empty_pool_has_no_endpoints() {
        let pool = PoolStatus { pool: "p".to_owned(), ..PoolStatus::default() };
        assert!(pool.to_string().starts_with("pool p: no endpoints\n"), "{pool}");
    }
}
