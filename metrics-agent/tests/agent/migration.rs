//! docs/install/from-the-epp.md names every flag of the EPP, and only flags that the agent has.

use std::collections::BTreeSet;

use clap::CommandFactory;
use metrics_agent::flags::Flags;

const GUIDE: &str = include_str!("../../../docs/install/from-the-epp.md");

/// The flags that `epp --help` of v0.10.0 lists, and the flags that it refuses with a hint.
const RECORDED: &str = include_str!("../captures/epp-0.10.0-flags.txt");

/// Rows of the table of flags: the flag without dashes, what takes its place, and where that is. A row has
/// the flags of one place.
fn rows() -> Vec<[&'static str; 3]> {
    let rows = GUIDE.lines().filter(|line| line.starts_with("| `--"));
    let of_row = |row: &'static str| {
        let columns = row.trim_matches(['|', ' ']).splitn(3, " | ").collect::<Vec<_>>();
        let [flags, place, text]: [&str; 3] = columns.try_into().expect(row);
        flags.split(", ").map(move |flag| [flag.trim_matches('`').trim_start_matches("--"), place, text])
    };
    rows.flat_map(of_row).collect()
}

#[test]
fn the_guide_has_a_row_for_every_flag_and_no_other() {
    let recorded: Vec<&str> = RECORDED.lines().collect();
    let flags: BTreeSet<&str> = rows().iter().map(|[flag, ..]| *flag).collect();
    assert_eq!(flags, recorded.iter().copied().collect());
    assert_eq!(rows().len(), recorded.len(), "a flag is there twice");
}

#[test]
fn the_flags_that_take_their_places_exist() {
    let command = Flags::command();
    let existing: BTreeSet<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
    for [flag, place, text] in rows() {
        let named = text.split('`').filter_map(|part| part.strip_prefix("--"));
        let named: Vec<&str> = named.filter_map(|part| part.split(' ').next()).collect();
        let unknown: Vec<_> = named.iter().filter(|name| !existing.contains(**name)).collect();
        assert!(unknown.is_empty(), "{flag}: {unknown:?}");
        match place {
            "same flag" => assert_eq!(named, [flag]),
            "other name" => assert!(!named.is_empty(), "{flag} names no flag"),
            "elsewhere" | "not needed" | "not there" => {}
            _ => panic!("{flag}: {place}"),
        }
    }
}
