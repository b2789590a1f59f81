//! The EPP's recorded answers against our rules: needs neither Envoy nor the EPP.

use endpoint_picker_bench::epp::VERSION;
use endpoint_picker_bench::parity::ours::Ours;
use endpoint_picker_bench::parity::recording::Recording;
use endpoint_picker_bench::parity::setup::SETUPS;
use endpoint_picker_bench::parity::verdict::Verdict;

#[test]
fn our_rules_agree_with_every_recorded_answer_of_the_epp() {
    for setup in SETUPS {
        let recording = Recording::read(setup).unwrap();
        assert_eq!(recording.run.epp, VERSION, "{}", setup.name);
        let mut ours = Ours::new(setup).unwrap();
        let mut agree = 0;
        for (number, (case, answer)) in recording.cases.iter().enumerate() {
            ours.hold(case).unwrap();
            let prediction = ours.predict(case).unwrap();
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
    }
}
