//! Errors that repeat.

use core::time::Duration;

use endpoint_picker::period::Period;

/// An error that has not occurred for this time is new again.
const QUIET: Duration = Duration::from_secs(60);

/// Maximum number of errors that are kept: their texts may contain bytes that an agent sends.
const MAX_ERRORS: usize = 8;

/// The errors of the last minute, each of which is logged once. Where requests alternate between two agents
/// and one agent fails, every second request has the same error.
#[derive(Debug, Default)]
pub struct RecentErrors(Vec<(String, Period)>);

impl RecentErrors {
    /// Notes an error. Returns whether it is to be logged, because it did not occur in the last minute.
    pub fn is_new(&mut self, error: String, now: Duration) -> bool {
        let Self(errors) = self;
        errors.retain(|(_, quiet)| quiet.contains(now));
        let quiet = Period::new(now, QUIET);
        if let Some((_, known)) = errors.iter_mut().find(|(text, _)| *text == error) {
            *known = quiet;
            return false;
        }
        if errors.len() >= MAX_ERRORS {
            // An error whose text differs each time must not fill the log either.
            return false;
        }
        errors.push((error, quiet));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(1_000_000);

    #[test]
    fn an_error_is_new_once_until_it_has_not_occurred_for_a_minute() {
        let mut errors = RecentErrors::default();
        let mut is_new =
            |error: &str, second: u64| errors.is_new(error.to_owned(), START + Duration::from_secs(second));
        for (error, second, expected) in [
            ("one", 0, true),
            ("two", 1, true),
            ("one", 2, false),
            ("two", 60, false),
            ("one", 61, false),
            ("two", 119, false),
            ("one", 121, true),
        ] {
            assert_eq!(is_new(error, second), expected, "{error} after {second} s");
        }
    }

    #[test]
    fn errors_that_are_worded_differently_each_time_do_not_fill_the_log() {
        let mut errors = RecentErrors::default();
        let logged = (0..1000).filter(|number| errors.is_new(number.to_string(), START)).count();
        assert_eq!(logged, MAX_ERRORS);
    }
}
