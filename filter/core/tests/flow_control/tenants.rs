//! The figures of tenants.

use core::time::Duration;
use std::collections::BTreeMap;

use endpoint_picker::flow_control::{
    Config, MAX_TENANTS, Machine, OTHER_TENANTS, Outcome, TenantStatus, Ticket,
};
use endpoint_picker::plugin::Arrival;
use proptest::prelude::{Strategy, any, prop, prop_oneof};
use proptest::test_runner::TestCaseResult;
use proptest::{prop_assert, prop_assert_eq};

use crate::fixture::{Queue, config, config_of};
use crate::properties::for_all;
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;

const IDLE: Duration = Duration::from_secs(600);

/// A configuration in which any number may wait for any time.
fn roomy(mut config: Config) -> Config {
    config.no_endpoint_request_ttl = None;
    for (_, band) in &mut config.bands {
        (band.max_requests, band.max_bytes, band.request_ttl) = (u64::MAX, u64::MAX, None);
    }
    config
}

fn tenant<'a>(queue: &'a Queue, priority: i32, id: &str) -> Option<TenantStatus<'a>> {
    queue.machine.tenants(priority).find(|tenant| tenant.fairness_id == id)
}

/// Waiting requests and bytes, and the ends of each outcome.
fn figures(queue: &Queue, priority: i32, id: &str) -> Option<(u64, u64, [u64; 6])> {
    tenant(queue, priority, id).map(|it| (it.requests, it.bytes, it.ends.map(|waits| waits.requests())))
}

/// As many tenants as have figures of their own, each with a request that waits. Returns its ticket.
fn fill(queue: &mut Queue) -> u64 {
    let tickets: Vec<u64> = (0..MAX_TENANTS).map(|n| queue.request(&format!("t{n}"), 0)).collect();
    tickets[0]
}

#[test]
fn each_tenant_of_a_band_has_its_figures() {
    let mut config = config();
    config.bands[0].1.max_requests = 2;
    let mut queue = Queue::new(config);
    let of = |fairness_id, bytes| Arrival { fairness_id, bytes, ..Arrival::default() };
    queue.offer(&of("a", 100));
    queue.pass(7);
    queue.offer(&of("b", 20));
    queue.offer(&of("b", 3));
    queue.request("b", 1);
    queue.machine.turn_away(&of("c", 0), queue.now).unwrap();
    queue.events();
    assert_eq!(figures(&queue, 0, "a"), Some((1, 100, [0; 6])));
    assert_eq!(figures(&queue, 0, "b"), Some((1, 20, [0, 1, 0, 0, 0, 0])));
    assert_eq!(figures(&queue, 0, "c"), Some((0, 0, [0, 1, 0, 0, 0, 0])));
    assert_eq!(figures(&queue, 1, "b"), Some((1, 0, [0; 6])));
    assert_eq!(figures(&queue, 1, "a"), None);
    queue.cancel(2);
    queue.drain();
    let a = tenant(&queue, 0, "a").unwrap();
    assert_eq!((a.requests, a.bytes), (0, 0));
    // After that of band 1, which went on in the next millisecond.
    assert_eq!((a.ends[0].requests(), a.ends[0].total()), (1, Duration::from_millis(9)));
    assert_eq!(figures(&queue, 0, "b"), Some((0, 0, [0, 1, 0, 0, 0, 1])));
}

#[test]
fn tenants_beyond_the_bound_count_together_until_one_is_idle_for_long() {
    let mut queue = Queue::new(roomy(config()));
    let first = fill(&mut queue);
    queue.request("late", 0);
    queue.request("later", 0);
    assert_eq!(figures(&queue, 0, OTHER_TENANTS), Some((2, 0, [0; 6])));
    queue.cancel(first);
    queue.pass(599_999);
    queue.request("late", 0);
    assert_eq!(figures(&queue, 0, OTHER_TENANTS).map(|it| it.0), Some(3));
    queue.pass(1);
    let late = queue.request("late", 0);
    assert_eq!(figures(&queue, 0, "late"), Some((1, 0, [0; 6])));
    assert_eq!(figures(&queue, 0, "t0"), None);
    // Its ends are in no other tenant's.
    assert_eq!(figures(&queue, 0, OTHER_TENANTS), Some((3, 0, [0; 6])));
    assert_eq!(queue.machine.bands().nth(1).unwrap().ends.map(|waits| waits.requests())[5], 1);
    // Nothing but what has waited since then is counted when it comes back.
    queue.cancel(late);
    queue.pass(600_000);
    queue.request("t0", 0);
    assert_eq!(figures(&queue, 0, "t0"), Some((1, 0, [0; 6])));
    assert_eq!(figures(&queue, 0, "late"), None);
}

#[test]
fn an_id_can_be_long_and_that_of_the_others() {
    let mut queue = Queue::new(config());
    queue.request(OTHER_TENANTS, 0);
    // 255 bytes and one of two, which is left out.
    let long = format!("{}é", "x".repeat(255));
    queue.request(&long, 0);
    queue.request(&long[..255], 0);
    assert_eq!(figures(&queue, 0, OTHER_TENANTS).map(|it| it.0), Some(1));
    assert_eq!(figures(&queue, 0, &long[..255]).map(|it| it.0), Some(2));
    assert_eq!(queue.machine.tenants(0).count(), 2);
}

#[test]
fn a_new_configuration_keeps_the_figures_of_bands_that_remain() {
    let mut queue = Queue::new(config().with_priorities([9]));
    for (id, priority) in [("a", 0), ("a", 9), ("b", 9)] {
        queue.request(id, priority);
    }
    queue.drain();
    queue.saturation(1.0);
    queue.request("a", 0);
    // This band remains while a request waits in it, and the request has no band of its own.
    queue.request("b", 9);
    queue.request("c", 7);
    let dispatched = |n| [n, 0, 0, 0, 0, 0];
    queue.machine.configure(config().with_priorities([7]), queue.now);
    assert_eq!(figures(&queue, 0, "a"), Some((1, 0, dispatched(1))));
    assert_eq!(figures(&queue, 9, "a"), Some((0, 0, dispatched(1))));
    assert_eq!(figures(&queue, 9, "b"), Some((1, 0, dispatched(1))));
    assert_eq!(figures(&queue, 7, "c"), Some((1, 0, [0; 6])));
    queue.drain();
    queue.machine.configure(config(), queue.now);
    assert_eq!(queue.machine.tenants(9).count() + queue.machine.tenants(7).count(), 0);
    assert_eq!(figures(&queue, 0, "a"), Some((0, 0, dispatched(2))));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A request of a tenant and priority, with a body of this length.
    Arrive(u8, i32, u64),
    /// A client leaves, by its number modulo that of waiting ones.
    Leave(usize),
    /// In milliseconds.
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let arrive = (0..140_u8, prop_oneof![-1..=0_i32], 0..50_u64);
    let step = prop_oneof![
        6 => arrive.prop_map(|(tenant, priority, bytes)| Step::Arrive(tenant, priority, bytes)),
        5 => any::<usize>().prop_map(Step::Leave),
        1 => prop_oneof![3 => 0..20_000_u64, 1 => 0..800_000_u64].prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..1_500)
}

/// The figures of a tenant, by the rules as they are written down.
#[derive(Clone, Debug, Default, PartialEq)]
struct Expected {
    requests: u64,
    bytes: u64,
    left: u64,
    waited: Duration,
    last: Duration,
}

#[derive(Debug, Default)]
struct Model {
    tenants: BTreeMap<(i32, String), Expected>,
    /// How many clients of replaced tenants left, by priority.
    replaced: BTreeMap<i32, u64>,
}

impl Model {
    fn named(&self) -> usize {
        self.tenants.keys().filter(|(_, id)| id != OTHER_TENANTS).count()
    }

    /// The name under which a request is counted.
    fn arrive(&mut self, priority: i32, id: String, now: Duration) -> (i32, String) {
        let mut name = (priority, id);
        if !self.tenants.contains_key(&name) && self.named() == MAX_TENANTS {
            let free = self.tenants.iter().filter(|((_, id), it)| id != OTHER_TENANTS && it.requests == 0);
            let free = free.filter(|(_, it)| it.last + IDLE <= now);
            match free.min_by_key(|(_, it)| it.last).map(|(name, _)| name.clone()) {
                Some(idle) => {
                    let replaced = self.tenants.remove(&idle).unwrap();
                    *self.replaced.entry(idle.0).or_default() += replaced.left;
                }
                None => OTHER_TENANTS.clone_into(&mut name.1),
            }
        }
        self.tenants.entry(name.clone()).or_default().last = now;
        name
    }
}

fn check(machine: &Machine, model: &Model) -> TestCaseResult {
    prop_assert!(model.named() <= MAX_TENANTS);
    for band in machine.bands() {
        let found: BTreeMap<_, _> = machine
            .tenants(band.priority)
            .map(|it| {
                let left = it.ends[Outcome::EvictedContextCancelled as usize];
                (it.fairness_id.to_owned(), (it.requests, it.bytes, left.requests(), left.total()))
            })
            .collect();
        let expected = model.tenants.iter().filter(|((priority, _), _)| *priority == band.priority);
        let expected: BTreeMap<_, _> =
            expected.map(|((_, id), it)| (id.clone(), (it.requests, it.bytes, it.left, it.waited))).collect();
        prop_assert_eq!(&found, &expected);
        let sum = |figure: fn(&(u64, u64, u64, Duration)) -> u64| found.values().map(figure).sum::<u64>();
        let left = band.ends[Outcome::EvictedContextCancelled as usize].requests();
        let replaced = model.replaced.get(&band.priority).copied().unwrap_or(0);
        prop_assert_eq!(
            (sum(|it| it.0), sum(|it| it.1), sum(|it| it.2) + replaced),
            (band.requests, band.bytes, left)
        );
    }
    Ok(())
}

#[test]
fn tenants_that_come_and_go_are_counted_by_the_rules() {
    for_all(50, &steps(), |steps| {
        let mut machine =
            Machine::new(roomy(config_of("fcfs-ordering-policy", "round-robin-fairness-policy")));
        let mut now = Duration::from_secs(1_000);
        machine.capacity(1.0, true, now);
        let (mut model, mut waiting) = (Model::default(), Vec::new());
        for (ticket, step) in (0..).map(Ticket).zip(steps) {
            // No two requests come at the same time, so that there is one that has been idle the longest.
            now += Duration::from_micros(1);
            match step {
                Step::Arrive(tenant, priority, bytes) => {
                    let fairness_id = format!("tenant-{tenant}");
                    let name = model.arrive(priority, fairness_id.clone(), now);
                    let tenant = model.tenants.get_mut(&name).unwrap();
                    (tenant.requests, tenant.bytes) = (tenant.requests + 1, tenant.bytes + bytes);
                    let arrival =
                        Arrival { fairness_id: &fairness_id, priority, bytes, ..Arrival::default() };
                    machine.offer(ticket, &arrival, now);
                    waiting.push((ticket, name, bytes, now));
                }
                Step::Leave(number) if !waiting.is_empty() => {
                    let (ticket, name, bytes, since) = waiting.swap_remove(number % waiting.len());
                    machine.cancel(ticket, now);
                    let tenant = model.tenants.get_mut(&name).unwrap();
                    (tenant.requests, tenant.bytes) = (tenant.requests - 1, tenant.bytes - bytes);
                    (tenant.left, tenant.waited) =
                        (tenant.left + 1, tenant.waited + now.saturating_sub(since));
                    tenant.last = now;
                }
                Step::Leave(_) => {}
                Step::Pass(milliseconds) => {
                    check(&machine, &model)?;
                    now += Duration::from_millis(milliseconds);
                }
            }
        }
        check(&machine, &model)
    });
}
