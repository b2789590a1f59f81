//! Random rules and events.

use core::time::Duration;

use endpoint_picker::flow_control::{BandConfig, Config, Eviction};
use proptest::prelude::{Just, Strategy, any, prop, prop_oneof};

use crate::fixture::{config, policy};
use crate::oracle::{BandRules, GRACE, HALF_LIFE, Limit, Order, PROGRAM_TTL, Rules, Share};

/// Something that happens to a queue. Requests are named by their number modulo the number of those there
/// are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Offer {
        flow: u8,
        priority: i32,
        bytes: u64,
        received_ago: u64,
        slo: Option<u64>,
        deadline: Option<u64>,
    },
    Cancel(usize),
    Finish(usize, Option<(u64, u64)>),
    Capacity(f64, bool),
    /// In microseconds.
    Pass(u64),
    Poll(u8),
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let offer = (
        0..5_u8,
        prop_oneof![Just(-3), Just(-1), Just(0), Just(0), Just(4), Just(9)],
        0..40_u64,
        0..3_000_u64,
        prop::option::of(0..3_000_u64),
        prop::option::of(0..20_000_u64),
    );
    let offer = offer.prop_map(|(flow, priority, bytes, received_ago, slo, deadline)| Step::Offer {
        flow,
        priority,
        bytes,
        received_ago,
        slo,
        deadline,
    });
    let saturation =
        prop_oneof![Just(0.0), Just(0.3), Just(0.55), Just(0.75), Just(0.9), Just(1.0), Just(1.7)];
    let pass = prop_oneof![4 => 0..2_500_u64, 2 => 0..50_000_u64, 1 => 0..15_000_000_u64];
    let tokens = prop::option::of((0..400_u64, 0..400_u64));
    let step = prop_oneof![
        6 => offer,
        1 => any::<usize>().prop_map(Step::Cancel),
        2 => (any::<usize>(), tokens).prop_map(|(number, tokens)| Step::Finish(number, tokens)),
        2 => (saturation, prop::bool::weighted(0.9)).prop_map(|(saturation, has)| Step::Capacity(saturation, has)),
        4 => pass.prop_map(Step::Pass),
        6 => (0..6_u8).prop_map(Step::Poll),
    ];
    prop::collection::vec(step, 1..120)
}

pub(crate) fn rules() -> impl Strategy<Value = Rules> {
    let order = prop_oneof![Just(Order::Fcfs), Just(Order::Edf), Just(Order::SloDeadline)];
    let share = prop_oneof![Just(Share::GlobalStrict), Just(Share::RoundRobin), Just(Share::ProgramAware)];
    let ttl = || prop::option::of((1..20_u64).prop_map(Duration::from_secs));
    let band = (1..8_u64, 20..200_u64, order, share, prop::option::of(ttl()));
    let bands = (band.clone(), prop::option::of(band.clone()), prop::option::of(band));
    // In half of the bands the maximum wait of all counts.
    let bands = (bands, ttl()).prop_map(|((zero, high, low), common)| {
        [(4, high), (0, Some(zero)), (-1, low)]
            .into_iter()
            .filter_map(|(priority, band)| {
                let (max_requests, max_bytes, order, share, own) = band?;
                Some(BandRules {
                    priority,
                    max_requests,
                    max_bytes,
                    ttl: own.unwrap_or(common),
                    order,
                    share,
                })
            })
            .collect()
    });
    let limit = prop_oneof![
        3 => Just(Limit::Static(1.0)),
        1 => Just(Limit::Static(0.6)),
        1 => Just(Limit::HoldbackByRank(0.4)),
        1 => Just(Limit::HoldbackByValue(0.5)),
        1 => Just(Limit::SoftReflective),
    ];
    let global = (prop::option::of(1..12_u64), prop::option::of(1..300_u64));
    (bands, global, ttl(), limit, any::<[bool; 2]>()).prop_map(
        |(bands, (max_requests, max_bytes), no_endpoint_ttl, limit, [evicts, decays_in_use])| Rules {
            bands,
            max_requests,
            max_bytes,
            no_endpoint_ttl,
            limit,
            evicts,
            decays_in_use,
        },
    )
}

/// The rules as the queue is configured with them.
pub(crate) fn configured(rules: &Rules) -> Config {
    let limit = |type_name: &str, parameters: &str| policy(type_name, parameters).usage_limit.unwrap();
    Config {
        max_bytes: rules.max_bytes,
        max_requests: rules.max_requests,
        no_endpoint_request_ttl: rules.no_endpoint_ttl,
        bands: rules.bands.iter().map(|rules| (rules.priority, band(rules))).collect(),
        usage_limit: match rules.limit {
            Limit::Static(threshold) => {
                limit("static-usage-limit-policy", &format!(r#"{{"threshold": {threshold}}}"#))
            }
            Limit::HoldbackByRank(min) => {
                limit("priority-holdback-policy", &format!(r#"{{"minCeiling": {min}}}"#))
            }
            Limit::HoldbackByValue(min) => limit(
                "priority-holdback-policy",
                &format!(r#"{{"minCeiling": {min}, "domain": "value", "shape": "linear"}}"#),
            ),
            Limit::SoftReflective => limit("soft-reflective-ceiling-policy", "{}"),
        },
        service_decays_in_use: rules.decays_in_use,
        eviction: rules.evicts.then_some(Eviction { grace: GRACE }),
        ..config()
    }
}

fn band(rules: &BandRules) -> BandConfig {
    let ordering = match rules.order {
        Order::Fcfs => "fcfs-ordering-policy",
        Order::Edf => "edf-ordering-policy",
        Order::SloDeadline => "slo-deadline-ordering-policy",
    };
    let programs =
        format!(r#"{{"lasHalfLifeSeconds": {HALF_LIFE}, "evictionTtlSeconds": {}}}"#, PROGRAM_TTL.as_secs());
    let (fairness, parameters) = match rules.share {
        Share::GlobalStrict => ("global-strict-fairness-policy", "{}"),
        Share::RoundRobin => ("round-robin-fairness-policy", "{}"),
        Share::ProgramAware => ("program-aware-fairness", programs.as_str()),
    };
    BandConfig {
        max_bytes: rules.max_bytes,
        max_requests: rules.max_requests,
        request_ttl: rules.ttl,
        ordering: policy(ordering, "{}").ordering.unwrap(),
        fairness_name: fairness.into(),
        fairness: policy(fairness, parameters).fairness.unwrap(),
    }
}
