//! docs/install/from-the-epp.md names every flag of the EPP, and only flags that the agent has.

use std::collections::BTreeSet;

use clap::CommandFactory;
use metrics_agent::catalogue::differences::{Counterpart, EPP_FLAGS, EppFlag};
use metrics_agent::flags::Flags;

const GUIDE: &str = include_str!("../../../docs/install/from-the-epp.md");

/// The flags that `epp --help` of v0.10.0 lists, and those that it refuses with a hint.
const RECORDED: &str = include_str!("../captures/epp-0.10.0-flags.txt");

#[test]
fn every_flag_of_the_epp_is_known() {
    let recorded: BTreeSet<&str> = RECORDED.lines().collect();
    let known: BTreeSet<&str> = EPP_FLAGS.iter().map(|flag| flag.name).collect();
    assert_eq!(known, recorded);
    assert_eq!(EPP_FLAGS.len(), recorded.len(), "a flag is there twice");
}

#[test]
fn the_guide_has_a_row_for_every_flag_and_no_other() {
    let rows: Vec<&str> = GUIDE.lines().filter(|line| line.starts_with("| `--")).collect();
    let row =
        |EppFlag { name, counterpart, text }: &EppFlag| format!("| `--{name}` | {counterpart} | {text} |");
    assert_eq!(rows, EPP_FLAGS.iter().map(row).collect::<Vec<_>>());
}

#[test]
fn the_flags_that_take_their_places_exist() {
    let command = Flags::command();
    let existing: BTreeSet<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
    for flag in EPP_FLAGS {
        let named = flag.text.split('`').filter_map(|part| part.strip_prefix("--"));
        let named: Vec<&str> = named.filter_map(|part| part.split(' ').next()).collect();
        let is_flag = matches!(flag.counterpart, Counterpart::Same | Counterpart::OtherName);
        assert!(!is_flag || !named.is_empty(), "{flag:?} names no flag");
        let unknown: Vec<_> = named.iter().filter(|name| !existing.contains(**name)).collect();
        assert!(unknown.is_empty(), "{flag:?}: {unknown:?}");
        if flag.counterpart == Counterpart::Same {
            assert_eq!(named, [flag.name]);
        }
    }
}
