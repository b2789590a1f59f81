//! Suggestions for names that are not known.

/// The minimum similarity of a suggested name, from 0 to 1: one wrong letter in four.
const MIN_SIMILARITY: f64 = 0.75;

/// The maximum length of a name that is compared, in bytes: the time grows with the product of both lengths.
const MAX_BYTES: usize = 128;

/// The end of a message about an unknown name: a question for the most similar known name, empty if none is
/// similar.
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    if name.len() > MAX_BYTES {
        return String::new();
    }
    let name = name.to_ascii_lowercase();
    let short = known.into_iter().filter(|other| other.len() <= MAX_BYTES);
    let rated = short.map(|it| (strsim::normalized_damerau_levenshtein(&name, &it.to_ascii_lowercase()), it));
    let similar = rated.filter(|(similarity, _)| *similarity >= MIN_SIMILARITY);
    let nearest = similar.max_by(|(a, _), (b, _)| a.total_cmp(b));
    nearest.map(|(_, name)| format!("; did you mean {name:?}?")).unwrap_or_default()
}

/// The end of a message about an unknown name: the suggestion, and then all known names.
pub fn with_allowed(name: &str, known: &[&str]) -> String {
    let suggestion = did_you_mean(name, known.iter().copied());
    let allowed = if suggestion.is_empty() { "; allowed" } else { " Allowed" };
    format!("{suggestion}{allowed}: {}", known.join(", "))
}

/// An error of serde, with a suggestion before the known names if it is about an unknown name: these errors
/// list the name and then the known ones, all in backticks.
pub fn with_suggestion(error: String) -> String {
    if !error.starts_with("unknown field `") && !error.starts_with("unknown variant `") {
        return error;
    }
    let mut names = error.split('`').skip(1).step_by(2);
    let suggestion = names.next().map(|name| did_you_mean(name, names)).unwrap_or_default();
    match error.split_once(", expected ") {
        Some((unknown, known)) if !suggestion.is_empty() => {
            format!("{unknown}{suggestion} Expected is {known}")
        }
        _ => error + &suggestion,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_similar_name_is_suggested() {
        let known = ["queue-scorer", "queue-depth-scorer", "prefix-cache-scorer"];
        for (name, expected) in [
            ("queue-scorrer", "; did you mean \"queue-scorer\"?"),
            ("Queue-Scorer", "; did you mean \"queue-scorer\"?"),
            ("qeueu-scorer", "; did you mean \"queue-scorer\"?"),
            ("prefix-cache-score", "; did you mean \"prefix-cache-scorer\"?"),
            ("magic-scorer", ""),
            ("", ""),
        ] {
            assert_eq!(did_you_mean(name, known), expected, "{name}");
        }
        assert_eq!(did_you_mean(&"x".repeat(1 << 20), [&*"x".repeat(1 << 20)]), "");
    }

    #[test]
    fn a_suggestion_comes_before_the_known_names() {
        let known = ["queue-scorer", "random-picker"];
        let text = "; did you mean \"queue-scorer\"? Allowed: queue-scorer, random-picker";
        assert_eq!(with_allowed("queue-scorrer", &known), text);
        assert_eq!(with_allowed("magic-scorer", &known), "; allowed: queue-scorer, random-picker");
    }

    #[test]
    fn an_error_of_serde_gets_a_suggestion_if_it_is_about_a_name() {
        let unknown = "unknown field `treshold`, expected `threshold` or `weight`";
        let expected =
            "unknown field `treshold`; did you mean \"threshold\"? Expected is `threshold` or `weight`";
        assert_eq!(with_suggestion(unknown.to_owned()), expected);
        for other in ["unknown field `magic`, there are no fields", "invalid type: string `x`, expected `y`"]
        {
            assert_eq!(with_suggestion(other.to_owned()), other);
        }
    }
}
