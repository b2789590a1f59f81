//! Malformed and hostile metrics texts cost only their own field.

use metrics_agent_catalogue::dialect::{Dialects, TextRules};
use metrics_agent_scrape::exposition::{Extraction, Fault, Field, Reader};
use proptest::prelude::*;

const REST: &str = "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 4\n";

fn vllm(text: &[u8]) -> Extraction {
    vllm_by(TextRules::default(), text)
}

fn vllm_by(rules: TextRules, text: &[u8]) -> Extraction {
    Reader::new(Dialects::built_in().of_engine("vllm"), rules).read(text)
}

/// Reads the lines as lines of the waiting metric, followed by a valid running metric.
fn waiting(lines: &str) -> (Option<u64>, Option<Fault>) {
    let extraction = vllm(format!("# TYPE vllm:num_requests_waiting gauge\n{lines}\n{REST}").as_bytes());
    assert_eq!(extraction.reading.running, Some(4), "the other field is read");
    let fault = extraction.faults.iter().find(|(field, _)| *field == Field::Waiting);
    (extraction.reading.waiting, fault.map(|(_, fault)| *fault))
}

#[test]
fn a_value_that_is_not_a_count_is_not_reported() {
    for value in ["-1", "-0.5", "NaN", "+Inf", "-Inf", "1e300", "9007199254740994"] {
        let read = waiting(&format!("vllm:num_requests_waiting {value}"));
        assert_eq!(read, (None, Some(Fault::Invalid)), "{value}");
    }
}

#[test]
fn a_fraction_is_truncated() {
    assert_eq!(waiting("vllm:num_requests_waiting 2.99"), (Some(2), None));
    assert_eq!(waiting("vllm:num_requests_waiting -0"), (Some(0), None));
}

#[test]
fn a_malformed_line_costs_its_field() {
    for line in
        ["vllm:num_requests_waiting x", "vllm:num_requests_waiting{a=b} 1", "vllm:num_requests_waiting{"]
    {
        assert_eq!(waiting(line), (None, Some(Fault::Invalid)), "{line}");
    }
}

#[test]
fn an_absent_metric_is_missing() {
    assert_eq!(waiting(""), (None, Some(Fault::Missing)));
}

#[test]
fn only_the_whole_name_matches() {
    for line in [
        "vllm:num_requests_waiting_by_reason 9",
        "xvllm:num_requests_waiting 9",
        "vllm:num_requests_waitin 9",
    ] {
        assert_eq!(waiting(line), (None, Some(Fault::Missing)), "{line}");
    }
}

#[test]
fn a_metric_without_a_kind_has_its_value_and_in_the_epp_reads_zero() {
    for kind in
        ["", "# TYPE vllm:num_requests_waiting untyped\n", "# TYPE vllm:num_requests_waiting histogram\n"]
    {
        let text = format!("{kind}vllm:num_requests_waiting 9\n{REST}");
        assert_eq!(vllm(text.as_bytes()).reading.waiting, Some(9), "{kind}");
        let of_epp = vllm_by(TextRules::EPP, text.as_bytes());
        assert_eq!(of_epp.reading.waiting, Some(0), "{kind}");
        assert!(of_epp.faults.contains(&(Field::Waiting, Fault::Untyped)), "{:?}", of_epp.faults);
        assert_eq!(of_epp.doubts.iter().map(|doubt| doubt.field).collect::<Vec<_>>(), [Field::Waiting]);
    }
}

#[test]
fn a_counter_is_not_a_number_of_requests() {
    let text = format!("# TYPE vllm:num_requests_waiting counter\nvllm:num_requests_waiting 60000\n{REST}");
    let own = vllm(text.as_bytes());
    assert_eq!((own.reading.waiting, own.reading.running), (None, Some(4)));
    assert!(own.faults.contains(&(Field::Waiting, Fault::Counter)), "{:?}", own.faults);
    assert_eq!(vllm_by(TextRules::EPP, text.as_bytes()).reading.waiting, Some(60_000));
}

#[test]
fn a_byte_order_mark_costs_nothing() {
    let text = format!("\u{feff}# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting 9\n{REST}");
    let bare = format!("\u{feff}vllm:num_requests_waiting 9\n{REST}");
    for rules in [TextRules::default(), TextRules::EPP] {
        assert_eq!(vllm_by(rules, text.as_bytes()).reading.waiting, Some(9));
    }
    let mut reader = Reader::new(Dialects::built_in().of_engine("vllm"), TextRules::default());
    for _ in 0..2 {
        reader.start();
        bare.as_bytes().chunks(1).for_each(|chunk| reader.feed(chunk));
        assert_eq!(reader.finish().reading.waiting, Some(9));
    }
}

#[test]
fn of_one_engines_series_the_largest_timestamp_wins_and_the_first_of_equals() {
    for (first, second, expected) in [("1", "2", 1), ("1 5", "2 6", 2), ("1 -5", "2", 2)] {
        let same = format!("vllm:num_requests_waiting {first}\nvllm:num_requests_waiting {second}");
        assert_eq!(waiting(&same), (Some(expected), None), "{same}");
        let other = format!(
            "vllm:num_requests_waiting{{m=\"a\"}} {first}\nvllm:num_requests_waiting{{m=\"b\"}} {second}"
        );
        assert_eq!(waiting(&other), (None, Some(Fault::Ambiguous)), "{other}");
        let text = format!("# TYPE vllm:num_requests_waiting gauge\n{other}\n");
        assert_eq!(vllm_by(TextRules::EPP, text.as_bytes()).reading.waiting, Some(expected), "{other}");
    }
}

#[test]
fn one_engine_with_an_invalid_value_makes_the_sum_unknown() {
    let lines = "vllm:num_requests_waiting{engine=\"0\"} 1\nvllm:num_requests_waiting{engine=\"1\"} NaN";
    assert_eq!(waiting(lines), (None, Some(Fault::Invalid)));
}

#[test]
fn engines_beyond_the_limit_are_refused() {
    let lines = |count| (0..count).map(|i| format!("vllm:num_requests_waiting{{engine=\"{i}\"}} 1\n"));
    assert_eq!(waiting(&lines(256).collect::<Vec<_>>().concat()), (Some(256), None));
    assert_eq!(waiting(&lines(10_000).collect::<Vec<_>>().concat()), (None, Some(Fault::Invalid)));
}

#[test]
fn a_line_longer_than_allowed_is_skipped() {
    let long = format!("vllm:num_requests_waiting{{a=\"{}\"}} 1", "x".repeat(64 * 1024));
    assert_eq!(waiting(&long), (None, Some(Fault::Missing)));
}

#[test]
fn adapters_are_trimmed_and_empty_ones_dropped() {
    let text = "# TYPE vllm:lora_requests_info gauge\n\
        vllm:lora_requests_info{max_lora=\"3\",running_lora_adapters=\" a, ,b,a,a,\",waiting_lora_adapters=\"\"} 2\n\
        vllm:lora_requests_info{max_lora=\"9\",running_lora_adapters=\"old\",waiting_lora_adapters=\"old\"} 1\n";
    let lora = vllm(text.as_bytes()).reading.lora.unwrap();
    assert_eq!((lora.running, lora.waiting, lora.max), (vec!["a".to_owned(), "b".to_owned()], vec![], 3));
}

#[test]
fn adapters_that_are_not_utf_8_are_not_reported() {
    let text =
        b"# TYPE vllm:lora_requests_info gauge\nvllm:lora_requests_info{running_lora_adapters=\"\xff\"} 1\n";
    let extraction = vllm(text);
    assert_eq!(extraction.reading.lora, None);
    assert!(extraction.faults.contains(&(Field::Lora, Fault::Invalid)));
}

#[test]
fn an_invalid_adapter_limit_does_not_cost_the_adapters() {
    for (written, max, is_legal) in
        [("-1", 0, true), ("2.0", 2, true), ("2", 2, true), ("", 0, true), ("x", 0, false), ("NaN", 0, false)]
    {
        let text = format!(
            "# TYPE vllm:lora_requests_info gauge\n\
             vllm:lora_requests_info{{max_lora=\"{written}\",running_lora_adapters=\"a\"}} 1\n"
        );
        let extraction = vllm(text.as_bytes());
        let lora = extraction.reading.lora.unwrap_or_else(|| panic!("{written}: no adapters"));
        assert_eq!((lora.running, lora.max), (vec!["a".to_owned()], max), "{written}");
        assert_eq!(!extraction.faults.contains(&(Field::Lora, Fault::Invalid)), is_legal, "{written}");
    }
}

#[test]
fn an_infinite_kv_usage_counts_as_a_full_cache() {
    let usage = |value: &str| {
        let text = format!("# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc {value}\n");
        vllm(text.as_bytes()).reading.kv_usage
    };
    assert_eq!(
        (usage("+Inf"), usage("Inf"), usage("-Inf"), usage("NaN")),
        (Some(1.0), Some(1.0), None, None)
    );
    let engines = |first: &str, second: &str| {
        usage(&format!(
            "0\nvllm:kv_cache_usage_perc{{engine=\"0\"}} {first}\nvllm:kv_cache_usage_perc{{engine=\"1\"}} {second}"
        ))
    };
    assert_eq!(engines("+Inf", "0.5"), Some(0.5), "the mean of 0, 1 and 0.5");
}

#[test]
fn kinds_in_capitals_and_names_in_quotes_are_read() {
    for text in [
        "# TYPE vllm:num_requests_waiting GAUGE\nvllm:num_requests_waiting 3\n",
        "# TYPE vllm:num_requests_waiting Gauge\nvllm:num_requests_waiting{a=\"b\"} 3\n",
        "# TYPE \"vllm:num_requests_waiting\" gauge\n{\"vllm:num_requests_waiting\"} 3\n",
        "# TYPE vllm:num_requests_waiting gauge\n{ \"vllm:num_requests_waiting\" ,\"a.b\"=\"c\",} 3 17\n",
    ] {
        let extraction = vllm(text.as_bytes());
        assert_eq!(extraction.reading.waiting, Some(3), "{text}");
    }
    let counter = "# TYPE vllm:num_requests_waiting Counter\nvllm:num_requests_waiting 3\n";
    assert_eq!(vllm_by(TextRules::EPP, counter.as_bytes()).reading.waiting, Some(3));
    let broken = "# TYPE vllm:num_requests_waiting gauge\n{\"vllm:num_requests_waiting\",a=b} 3\n";
    assert!(vllm(broken.as_bytes()).faults.contains(&(Field::Waiting, Fault::Invalid)));
}

#[test]
fn a_cache_label_that_is_not_a_number_costs_only_itself() {
    let text = "# TYPE vllm:cache_config_info gauge\n\
        vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"None\"} 1\n";
    let extraction = vllm(text.as_bytes());
    assert_eq!((extraction.reading.block_size, extraction.reading.num_blocks), (Some(16), None));
    assert!(extraction.faults.contains(&(Field::NumBlocks, Fault::Invalid)));
}

#[test]
fn no_state_is_kept_from_one_text_to_the_next() {
    let mut reader = Reader::new(Dialects::built_in().of_engine("vllm"), TextRules::default());
    let busy = include_bytes!("../captures/vllm-0.32.0-lora-busy.prom");
    let first = reader.read(busy);
    reader.start();
    reader.feed(b"# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting x\nvllm:num_req");
    assert!(reader.read(b"").is_empty());
    assert_eq!(reader.read(busy), first);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(text in proptest::collection::vec(any::<u8>(), 0..2000)) {
        vllm(&text);
    }

    #[test]
    fn no_damage_to_a_real_text_makes_it_panic(cuts in proptest::collection::vec((0_usize..53_901, any::<u8>()), 1..200)) {
        let mut text = include_bytes!("../captures/vllm-0.32.0-lora-busy.prom").to_vec();
        for (at, byte) in cuts {
            text[at] = byte;
        }
        vllm(&text);
    }
}
