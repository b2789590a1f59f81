//! Policies of flow control.

use core::num::NonZeroU32;
use core::time::Duration;

use endpoint_picker::config::{FlowControlConfig, PickerConfig, PriorityBand};
use endpoint_picker::flow_control::{CacheRoom, Event, Machine, Ticket, Tokens};
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::plugin::Arrival;
use endpoint_picker::plugin::Instance;
use endpoint_picker::plugin::registry::read_plugin;
use endpoint_picker::state::SessionDemand;
use serde_json::{Value, json};

use crate::NOW;
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;

/// A queue in front of a saturated pool, with bands for 1, 0 and −1, all with these policies.
fn queue(ordering: &str, fairness: &str, usage_limit: &str, parameters: &Value) -> Machine {
    let band = PriorityBand {
        ordering_policy: ordering.to_owned(),
        fairness_policy: fairness.to_owned(),
        ..PriorityBand::default()
    };
    let flow_control = FlowControlConfig {
        default_priority_band: Some(band),
        usage_limit_policy: usage_limit.to_owned(),
        ..FlowControlConfig::default()
    };
    // The parameters of the usage limit policy, or of the fairness policy where there is none.
    let (none, of_fairness) = (json!({}), if usage_limit.is_empty() { parameters } else { &json!({}) });
    let declared = [(ordering, &none), (fairness, of_fairness), (usage_limit, parameters)];
    let plugins = declared.into_iter().filter(|(name, _)| !name.is_empty()).map(|(name, parameters)| {
        Instance { name: name.to_owned(), plugin: read_plugin(name, &parameters.to_string()).unwrap() }
    });
    let (plugins, flow_control) = (plugins.collect(), Some(flow_control));
    let pipeline =
        Pipeline::compile(PickerConfig { plugins, flow_control, ..PickerConfig::default() }).unwrap();
    let mut machine = Machine::new(pipeline.flow_control().unwrap().clone().with_priorities([1, -1]));
    machine.capacity(1.0, true, NOW);
    // Uses up the cycle of this millisecond.
    assert_eq!(machine.poll(NOW), None);
    machine
}

/// Offers requests with tickets from 1, all at once.
fn offer(machine: &mut Machine, arrivals: &[Arrival<'_>]) {
    for (ticket, arrival) in (1..).zip(arrivals) {
        machine.offer(Ticket(ticket), arrival, NOW);
    }
    assert_eq!(machine.poll(NOW), None);
}

/// The requests in the order in which they are dispatched, one in each millisecond.
fn dispatched(machine: &mut Machine) -> Vec<u64> {
    machine.capacity(0.0, true, NOW);
    let mut order = Vec::new();
    while let Some(now) = machine.wake_at() {
        if let Some(Event::Dispatch { ticket, .. }) = machine.poll(now) {
            order.push(ticket.0);
        }
    }
    order
}

/// Whether a request of this priority is dispatched at once at this saturation.
fn passes(machine: &mut Machine, ticket: u64, priority: i32, saturation: f64) -> bool {
    machine.capacity(saturation, true, NOW);
    machine.offer(Ticket(ticket), &Arrival { priority, ..Arrival::default() }, NOW);
    let event = machine.poll(NOW);
    machine.cancel(Ticket(ticket), NOW);
    event.is_some()
}

fn of(fairness_id: &str) -> Arrival<'_> {
    Arrival { fairness_id, ..Arrival::default() }
}

#[test]
fn fcfs_ordering_policy() {
    let mut machine = queue("fcfs-ordering-policy", "", "", &json!({}));
    offer(&mut machine, &[of("a"), of("a")]);
    assert_eq!(dispatched(&mut machine), [1, 2]);
}

#[test]
fn edf_ordering_policy() {
    let mut machine = queue("edf-ordering-policy", "", "", &json!({}));
    let ends = Arrival { deadline: Some(NOW + Duration::from_secs(5)), ..Arrival::default() };
    offer(&mut machine, &[of("a"), ends]);
    assert_eq!(dispatched(&mut machine), [2, 1]);
}

#[test]
fn slo_deadline_ordering_policy() {
    let mut machine = queue("slo-deadline-ordering-policy", "", "", &json!({}));
    let aim = |received, slo| Arrival {
        received: Duration::from_secs(received),
        ttft_slo: Some(Duration::from_millis(slo)),
        ..Arrival::default()
    };
    offer(&mut machine, &[aim(1, 2_000), aim(2, 500)]);
    assert_eq!(dispatched(&mut machine), [2, 1]);
}

#[test]
fn global_strict_fairness_policy() {
    let mut machine = queue("", "global-strict-fairness-policy", "", &json!({}));
    offer(&mut machine, &[of("b"), of("a"), of("b")]);
    assert_eq!(dispatched(&mut machine), [1, 2, 3]);
}

#[test]
fn round_robin_fairness_policy() {
    let mut machine = queue("", "round-robin-fairness-policy", "", &json!({}));
    offer(&mut machine, &[of("b"), of("b"), of("a")]);
    assert_eq!(dispatched(&mut machine), [3, 1, 2]);
}

#[test]
fn program_aware_fairness() {
    let mut machine = queue("", "program-aware-fairness", "", &json!({}));
    for (ticket, program, input) in [(91, "a", 1_000), (92, "b", 10)] {
        machine.offer(Ticket(ticket), &of(program), NOW);
        machine.capacity(0.0, true, NOW);
        assert!(machine.poll(NOW).is_some());
        machine.finish(Ticket(ticket), Some(Tokens { input, output: 0 }), NOW);
    }
    machine.capacity(1.0, true, NOW);
    machine.offer(Ticket(1), &of("a"), NOW);
    machine.offer(Ticket(2), &of("b"), NOW + Duration::from_secs(9));
    assert_eq!(dispatched(&mut machine), [2, 1]);
}

/// Example of `program-aware-fairness`, by the facts of #2116.
#[test]
fn turns_of_programs() {
    let mut machine = queue("", "program-aware-fairness", "", &json!({"strategy": "turn-priority"}));
    for ticket in 91..95 {
        machine.capacity(0.0, true, NOW);
        machine.offer(Ticket(ticket), &of("a"), NOW);
        assert!(machine.poll(NOW).is_some());
        machine.finish(Ticket(ticket), None, NOW);
    }
    machine.capacity(1.0, true, NOW);
    machine.offer(Ticket(1), &of("b"), NOW);
    machine.offer(Ticket(2), &of("a"), NOW + Duration::from_secs(50));
    assert_eq!(dispatched(&mut machine), [2, 1], "turn 5 and turn 1 with 2.5 more for its wait");
}

#[test]
fn static_usage_limit_policy() {
    let mut machine = queue("", "", "static-usage-limit-policy", &json!({"threshold": 0.5}));
    assert!(passes(&mut machine, 1, 0, 0.49));
    assert!(!passes(&mut machine, 2, 0, 0.5));
}

#[test]
fn priority_holdback_policy() {
    let mut machine = queue("", "", "priority-holdback-policy", &json!({"minCeiling": 0.5}));
    for (ticket, (priority, saturation, expected)) in
        (1..).zip([(1, 0.99, true), (0, 0.75, false), (0, 0.74, true), (-1, 0.5, false), (-1, 0.49, true)])
    {
        assert_eq!(passes(&mut machine, ticket, priority, saturation), expected, "{priority} {saturation}");
    }
}

#[test]
fn session_admission_policy() {
    let mut machine = queue("", "", "session-admission-policy", &json!({}));
    machine.capacity(0.0, true, NOW);
    let offer = |machine: &mut Machine, ticket, tokens| {
        let demand = NonZeroU32::new(tokens).map(|tokens| SessionDemand { tokens, is_known: false });
        machine.offer(Ticket(ticket), &Arrival { demand, ..Arrival::default() }, NOW);
    };
    machine.caches(Some(CacheRoom { free: 19_999, whole: 240_000 }));
    offer(&mut machine, 1, 20_000);
    assert_eq!(machine.poll(NOW), None);
    assert!(passes(&mut machine, 2, 0, 9.0), "a request of a session in work");
    machine.caches(Some(CacheRoom { free: 20_000, whole: 240_000 }));
    let later = NOW + Duration::from_millis(2);
    assert!(matches!(machine.poll(later), Some(Event::Dispatch { ticket: Ticket(1), .. })));
}

#[test]
fn soft_reflective_ceiling_policy() {
    let mut machine = queue("", "", "soft-reflective-ceiling-policy", &json!({}));
    let passed: Vec<bool> = (1..=6).map(|ticket| passes(&mut machine, ticket, -1, 0.75)).collect();
    assert_eq!(passed, [false, false, true, false, false, true]);
}
