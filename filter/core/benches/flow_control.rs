//! A request that passes the queue, while nothing waits and while very many do.

#![allow(clippy::unwrap_used, reason = "a bench that cannot go on has failed")]
#![allow(missing_docs, reason = "the macros of the bench harness make public functions")]

use core::time::Duration;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use endpoint_picker::flow_control::{BandConfig, Config, Machine, Ticket};
use endpoint_picker::plugin::Arrival;
use endpoint_picker::plugin::registry::read_plugin;

const POLICIES: [(&str, &str); 4] = [
    ("fcfs-ordering-policy", "global-strict-fairness-policy"),
    ("slo-deadline-ordering-policy", "global-strict-fairness-policy"),
    ("fcfs-ordering-policy", "round-robin-fairness-policy"),
    ("fcfs-ordering-policy", "program-aware-fairness"),
];

fn machine(ordering: &str, fairness: &str) -> Machine {
    let roles = |type_name| read_plugin(type_name, "{}").unwrap().roles();
    let band = BandConfig {
        max_bytes: u64::MAX,
        max_requests: u64::MAX,
        request_ttl: None,
        ordering: roles(ordering).ordering.unwrap(),
        fairness_name: fairness.into(),
        fairness: roles(fairness).fairness.unwrap(),
    };
    let config = Config {
        max_bytes: None,
        max_requests: None,
        no_endpoint_request_ttl: None,
        bands: Vec::new(),
        default_band: band.clone(),
        default_negative_band: band,
        usage_limit: roles("static-usage-limit-policy").usage_limit.unwrap(),
        service_decays_in_use: false,
        eviction: None,
    };
    Machine::new(config.with_priorities([1, -1]))
}

/// A request arrives, and the one that goes first is dispatched and ends.
fn pass(machine: &mut Machine, ticket: u64, flows: &[String]) {
    let now = Duration::from_micros(ticket);
    let fairness_id = &flows[usize::try_from(ticket).unwrap() % flows.len()];
    let slo = Duration::from_millis(ticket * 7_919 % 1_000);
    let arrival =
        Arrival { fairness_id, bytes: 1_000, received: now, ttft_slo: Some(slo), ..Arrival::default() };
    machine.offer(Ticket(ticket), black_box(&arrival), now);
    if let Some(endpoint_picker::flow_control::Event::Dispatch { ticket, .. }) = machine.poll(now) {
        machine.finish(ticket, None, now);
    }
}

fn offer_and_poll(c: &mut Criterion) {
    let flows: Vec<String> = (0..1_000).map(|flow| format!("tenant-{flow}")).collect();
    for waiting in [0, 100_000] {
        let mut group = c.benchmark_group(format!("offer, poll and finish, {waiting} waiting"));
        for (ordering, fairness) in POLICIES {
            let mut machine = machine(ordering, fairness);
            machine.capacity(1.0, true, Duration::ZERO);
            let mut ticket = 0;
            while ticket < waiting {
                ticket += 1;
                pass(&mut machine, ticket, &flows);
            }
            machine.capacity(0.5, true, Duration::from_micros(ticket));
            group.bench_function(BenchmarkId::new(ordering, fairness), |b| {
                b.iter(|| {
                    ticket += 1;
                    pass(&mut machine, ticket, &flows);
                });
            });
            let left: u64 = machine.bands().map(|band| band.requests).sum();
            assert!(left <= waiting, "{left} wait");
        }
        group.finish();
    }
}

criterion_group!(benches, offer_and_poll);
criterion_main!(benches);
