//! What clients wait with each way to pick, in small cells of all workloads: the test of every change of a rule.

use endpoint_picker_simulation::cell::pickers::{VARIANTS, Variant};
use endpoint_picker_simulation::cell::table::{Condition, Plan, Results, median};
use endpoint_picker_simulation::cell::workloads::{Drawn, Workload};
use std::time::Duration;

use crate::seeds;

/// All workloads at 80 % of the capacity, with 900 requests before and while measuring.
fn plan(variants: &[&str]) -> Plan {
    Plan {
        workloads: Drawn::ALL.map(Workload::Drawn).to_vec(),
        loads: vec![0.8],
        seeds: seeds().collect(),
        variants: variants.iter().map(|name| Variant::named(name).unwrap()).collect(),
        requests: 600,
        scrape_interval: Some(Duration::from_millis(50)),
        threads: 2,
    }
}

/// The p90 of a variant as a part of another one's, the median over the seeds.
fn ratio(results: &Results, condition: Condition, variant: &str, other: &str) -> f64 {
    let mut ratios = results.p90_ratios(condition, variant, other);
    ratios.sort_by(f64::total_cmp);
    median(&ratios)
}

#[test]
fn one_that_knows_everything_is_not_worse_than_the_default_and_much_better_with_most_workloads() {
    let results = plan(&["default", "omniscient"]).run(&|_| ());
    let mut better = 0;
    for condition in results.conditions() {
        let ratio = ratio(&results, condition, "omniscient", "default");
        println!("{}: {ratio:.3}", results.name(condition));
        assert!(ratio <= 1.05, "{}: {ratio:.3}", results.name(condition));
        better += usize::from(ratio <= 0.85);
    }
    assert!(better >= 6, "{better} of 10 workloads");
}

#[test]
fn equal_options_give_equal_tables() {
    let all: Vec<&str> = VARIANTS.iter().map(|variant| variant.name).collect();
    let table = |threads| {
        let workloads = [Drawn::ShareGpt, Drawn::Adapters].map(Workload::Drawn).to_vec();
        Plan { workloads, seeds: vec![7, 8], requests: 150, threads, ..plan(&all) }.run(&|_| ()).markdown()
    };
    let (first, second) = (table(1), table(3));
    assert_eq!(first, second);
    assert_eq!(first.lines().filter(|line| line.contains("% | default")).count(), 2, "{first}");
}
