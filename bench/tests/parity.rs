//! The EPP's recorded responses against our rules: needs neither Envoy nor the EPP.

use anyhow::Result;
use endpoint_picker::epp_rules::EppRules;
use endpoint_picker_bench::epp::recorded_version;
use endpoint_picker_bench::parity::ours::Ours;
use endpoint_picker_bench::parity::recording::Recording;
use endpoint_picker_bench::parity::setup::{SETUPS, Setup};
use endpoint_picker_bench::parity::verdict::Verdict;

#[test]
fn our_rules_agree_with_every_recorded_answer_of_the_release() -> Result<()> {
    compare_all(EppRules::V010)
}

#[test]
fn our_rules_agree_with_every_recorded_answer_of_the_later_commit() -> Result<()> {
    compare_all(EppRules::Ebab68792)
}

fn compare_all(rules: EppRules) -> Result<()> {
    SETUPS.iter().filter(|setup| setup.compares(rules)).try_for_each(|setup| compare(setup, rules))
}

fn compare(setup: &'static Setup, rules: EppRules) -> Result<()> {
    let recording = Recording::read(setup, rules)?;
    assert_eq!(recording.run.epp, recorded_version(rules), "{}", setup.name);
    let comparison = recording.run.comparison(setup, rules)?;
    let mut ours = Ours::new(&comparison)?;
    let mut agree = 0;
    for (number, (case, answer)) in recording.cases.iter().enumerate() {
        ours.hold(case)?;
        let prediction = ours.predict(case)?;
        let verdict = Verdict::on(case, &prediction.expected, answer);
        assert_ne!(
            verdict,
            Verdict::Disagree,
            "{} case {number}: {}\nour rules: {:?}: {}\nthe EPP: {answer}",
            setup.name,
            case.request,
            prediction.expected,
            prediction.explanation,
        );
        agree += usize::from(verdict == Verdict::Agree);
        ours.remember(&prediction);
    }
    let cases = recording.cases.len();
    assert!(
        agree * 10 > cases * 7,
        "{}: {agree} of {cases} agree, the rest are known differences",
        setup.name
    );
    Ok(())
}
