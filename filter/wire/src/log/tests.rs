//! The log as it is written and read.

use super::*;
use endpoint_picker::pool::Endpoint;

const AT: Duration = Duration::from_nanos(1_795_000_000_123_456_789);
const LOAD: Load = Load { requests: 1, tokens: 512 };

fn all() -> Vec<Entry<'static>> {
    let entry = |what| Entry { vm: u64::MAX, endpoint: 7, what };
    let (plugin, to, session) = (3, 8, 9);
    vec![
        entry(What::Started(LOAD)),
        entry(What::Ended(LOAD)),
        entry(What::Moved { to, load: LOAD }),
        entry(What::Loads(&[])),
        entry(What::Loads(&[[1, 2, 3], [4, 5, u64::MAX]])),
        entry(What::Failed { at: AT }),
        entry(What::Answered { at: Duration::ZERO }),
        entry(What::Restarted { since: AT }),
        entry(What::SentPrompt { plugin, capacity: 31_250, chain: &[] }),
        entry(What::SentPrompt { plugin, capacity: 1, chain: &[u64::MAX, 0, 5] }),
        entry(What::SentCold { plugin }),
        entry(What::BoundSession { plugin, session, at: AT }),
    ]
}

fn written(entries: &[Entry<'_>]) -> Vec<u64> {
    let mut log = Vec::new();
    for entry in entries {
        entry.write(&mut log);
    }
    words(&log).collect()
}

#[test]
fn what_was_written_is_read() {
    let words = written(&all());
    let found: Result<Vec<_>, _> = read(&words).collect();
    assert_eq!(found, Ok(all()));
}

#[test]
fn an_entry_that_is_not_understood_costs_no_other() {
    let [first, .., last] = &all()[..] else { panic!("two at least") };
    let mut words = written(&[*first]);
    // Kinds that there are not, and kinds with other contents than theirs.
    let strange =
        [(0, 1), (11, 0), (u32::MAX, 3), (STARTED, 3), (LOADS, 2), (SENT_PROMPT, 1), (SENT_COLD, 0_usize)];
    for (kind, length) in strange {
        words.extend([u64::from(kind) << 32 | length as u64, 1, 2]);
        words.extend(vec![3; length]);
    }
    words.extend(written(&[*last]));
    let found: Vec<_> = read(&words).collect();
    let refused = strange.map(|(kind, length)| Err(Malformed { kind, words: length }));
    assert_eq!(found, [&[Ok(*first)][..], &refused, &[Ok(*last)]].concat());
}

#[test]
fn an_entry_that_was_cut_ends_the_log() {
    let whole = written(&all());
    for length in 0..whole.len() {
        let found: Vec<_> = read(&whole[..length]).collect();
        let whole_ones = found.iter().take_while(|entry| entry.is_ok()).count();
        assert_eq!(found[..whole_ones], all().into_iter().map(Ok).collect::<Vec<_>>()[..whole_ones]);
        assert!(found.len() <= whole_ones + 1, "{found:?}");
    }
    let longest = [u64::MAX, 1, 2];
    let found: Vec<_> = read(&longest).collect();
    assert_eq!(found, [Err(Malformed { kind: u32::MAX, words: 2 })]);
}

#[test]
fn bytes_that_make_no_word_are_left_out() {
    assert_eq!(words(&[1, 0, 0, 0, 0, 0, 0, 0, 9, 9]).collect::<Vec<_>>(), [1]);
}

#[test]
fn what_a_plugin_remembers_goes_from_pool_to_pool_by_keys() {
    let endpoint = |n: u8| Endpoint::new(format!("default/{n}"), ([10, 0, 0, n], 8000).into(), Vec::new());
    let pool = |all: &[u8]| Pool::new("p".to_owned(), all.iter().map(|&n| endpoint(n)).collect()).unwrap();
    let (here, there, elsewhere) = (pool(&[1, 2]), pool(&[2, 3, 1]), pool(&[1]));
    let sent = |endpoint| Change::SentPrompt { endpoint, capacity: 9, chain: vec![1, 2, 3] };
    let bound = |endpoint| Change::BoundSession { session: 6, endpoint, at: AT };
    let changes: [&dyn Fn(usize) -> Change; 3] = [&sent, &|endpoint| Change::SentCold { endpoint }, &bound];
    for change in changes {
        let event = |endpoint| Event { plugin: 5, change: change(endpoint) };
        let (said, gone) = (event(1), event(2));
        let entry = Entry::remembered(4, &said, &here).unwrap();
        let heard = |pool| entry.event(pool).map(|event| format!("{event:?}"));
        assert_eq!(heard(&there), Some(format!("{:?}", event(0))));
        assert_eq!(heard(&elsewhere), None);
        assert_eq!(Entry::remembered(4, &gone, &here), None);
    }
    assert_eq!(Entry { vm: 4, endpoint: 7, what: What::Started(LOAD) }.event(&here), None);
}
