//! The EPP's recorded responses against our rules: needs neither Envoy nor the EPP.

use std::collections::BTreeSet;
use std::fs;

use anyhow::Result;
use endpoint_picker::epp_rules::EppRules;
use endpoint_picker_bench::epp::recorded_version;
use endpoint_picker_bench::parity::configuration::drawn;
use endpoint_picker_bench::parity::ours::Ours;
use endpoint_picker_bench::parity::recording::Recording;
use endpoint_picker_bench::parity::setup::{Comparison, SETUPS, Setup};
use endpoint_picker_bench::parity::verdict::{Difference, Verdict, VerdictCounts};
use endpoint_picker_harness::tools;
use metrics_agent_catalogue::epp::Release;
use metrics_agent_catalogue::epp::types::{self, Here};

#[test]
fn our_rules_agree_with_every_recorded_answer_of_the_release() -> Result<()> {
    let counts = compare_all(EppRules::V010)?;
    let (agree, known) = (counts.of(Verdict::Agree), counts.cases() - counts.of(Verdict::Agree));
    has("README.md", &format!("EPP v0.10.0 in all {agree} compared cases"));
    has("README.md", &format!("{known} more have a named"));
    has(
        "docs/design/parity.md",
        &format!("v0.10.0: {agree} cases agree, and {known} have a known difference"),
    );
    Ok(())
}

#[test]
fn our_rules_agree_with_every_recorded_answer_of_the_later_commit() -> Result<()> {
    let counts = compare_all(EppRules::Ebab68792)?;
    let (agree, known) = (counts.of(Verdict::Agree), counts.cases() - counts.of(Verdict::Agree));
    has("docs/design/parity.md", &format!("the later commit: {agree} and {known}"));
    Ok(())
}

#[test]
fn the_live_counts_add_up_and_are_the_same_on_all_pages() {
    let page = fs::read_to_string(tools::root().join("docs/design/parity.md")).unwrap_or_default();
    let is_count = |line: &&str| line.starts_with("| v0.10.0 | ") || line.starts_with("| later commit | ");
    let (mut cases, mut agree, mut rows) = (0, 0, 0);
    for line in page.lines().filter(is_count) {
        let numbers: Vec<usize> = line.split('|').filter_map(|cell| cell.trim().parse().ok()).collect();
        let [all, same, known @ ..] = numbers.as_slice() else { panic!("no counts: {line}") };
        assert_eq!(same + known.iter().sum::<usize>(), *all, "{line}");
        (cases, agree, rows) = (cases + all, agree + same, rows + 1);
    }
    assert_eq!(rows, 4, "versions and forms");
    let known = cases - agree;
    has("README.md", &format!("{agree} of {cases} live cases"));
    has("docs/reference/differences.md", &format!("Of {cases} live cases {known} had one"));
}

#[test]
fn every_known_difference_has_a_row_among_the_deliberate_ones() {
    for difference in Difference::ALL {
        has("docs/reference/differences.md", &format!("- **{}**", difference.row()));
    }
}

#[test]
fn every_accepted_type_is_compared_or_named_as_not_compared() -> Result<()> {
    let mut compared = BTreeSet::from([String::from("file-discovery")]);
    for rules in [EppRules::V010, EppRules::Ebab68792] {
        for setup in SETUPS {
            let seeds = if setup.shape.is_some() { 0..200 } else { 0..1 };
            for seed in seeds {
                let comparison = Comparison::new(setup, rules, seed)?;
                compared.extend(comparison.plugins().into_iter().map(str::to_owned));
            }
        }
    }
    let accepted = types::of(Release::V010).filter(|it| !matches!(it.here, Here::Refused(_)));
    let accepted: BTreeSet<String> = accepted.map(|it| it.name.to_owned()).collect();
    let page = document("docs/design/parity.md");
    let section = page.split("## Not compared").nth(1).unwrap_or_default();
    let named: BTreeSet<String> = section
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|name| types::find(name).is_some())
        .map(str::to_owned)
        .collect();
    let missing: BTreeSet<&String> = accepted.difference(&compared).collect();
    assert_eq!(missing, named.iter().collect(), "types that no setup has, and those that the page names");
    has(
        "docs/design/parity.md",
        &format!("{} of the {} accepted types", accepted.len() - missing.len(), accepted.len()),
    );
    Ok(())
}

#[test]
fn equal_seeds_draw_equal_configurations() {
    for shape in SETUPS.iter().filter_map(|setup| setup.shape) {
        let config = |seed| drawn(shape, EppRules::V010, seed);
        assert_eq!(config(7), config(7));
        assert_ne!(config(7), config(8));
    }
}

fn document(path: &str) -> String {
    let text = fs::read_to_string(tools::root().join(path)).unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn has(path: &str, sentence: &str) {
    assert!(document(path).contains(sentence), "{path} lacks {sentence:?}");
}

fn compare_all(rules: EppRules) -> Result<VerdictCounts> {
    let mut all = VerdictCounts::default();
    for setup in SETUPS {
        for recording in Recording::read_all(setup, rules)? {
            all += compare(setup, rules, &recording)?;
        }
    }
    Ok(all)
}

fn compare(setup: &'static Setup, rules: EppRules, recording: &Recording) -> Result<VerdictCounts> {
    assert_eq!(recording.run.epp, recorded_version(rules), "{}", setup.name);
    let comparison = recording.run.comparison(setup, rules)?;
    let mut ours = Ours::with_record_of_epp(&comparison)?;
    let mut counts = VerdictCounts::default();
    for (number, (case, answer)) in recording.cases.iter().enumerate() {
        ours.hold(case)?;
        let prediction = ours.predict(case)?;
        let verdict = Verdict::on(&comparison, case, &prediction.expected, answer);
        assert_ne!(
            verdict,
            Verdict::Disagree,
            "{} seed {} case {number}: {}\nour rules: {:?}: {}\nthe EPP: {answer}",
            setup.name,
            recording.run.seed,
            case.request,
            prediction.expected,
            prediction.explanation,
        );
        counts.count(verdict, true);
        ours.remember(&prediction);
    }
    Ok(counts)
}
