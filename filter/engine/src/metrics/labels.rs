//! The values of a series' labels, which may come from outside: endpoints, models, names of objects.

/// Stands before each value. No address, model or resource of Kubernetes has it in its name.
const SEPARATOR: char = '|';

/// The value of series beyond the limit of a metric.
pub const OTHER: &str = "other";

/// Characters of a value that are kept.
const LONGEST_VALUE: usize = 128;

/// The values of a series' labels, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(String);

impl Labels {
    pub(crate) fn new(values: &[&str]) -> Self {
        let mut labels = Self::default();
        labels.set(values);
        labels
    }

    /// Replaces the values.
    pub(super) fn set(&mut self, values: &[&str]) {
        let Self(suffix) = self;
        suffix.clear();
        suffix.reserve(values.iter().map(|value| 1 + value.len().min(LONGEST_VALUE)).sum());
        for value in values {
            suffix.push(SEPARATOR);
            let is_kept = |byte: u8| byte.is_ascii_graphic() && byte != SEPARATOR as u8;
            let has_empty_part = value.ends_with('.') || value.contains("..");
            if value.len() <= LONGEST_VALUE && value.bytes().all(is_kept) && !has_empty_part {
                suffix.push_str(value);
                continue;
            }
            let mut letters = value.chars().take(LONGEST_VALUE).peekable();
            while let Some(letter) = letters.next() {
                // Envoy cuts a dot at the end of a name, and with it the label.
                let is_empty_part = letter == '.' && letters.peek().is_none_or(|&next| next == '.');
                let is_replaced = letter.is_control() || letter == SEPARATOR || is_empty_part;
                suffix.push(if is_replaced { '_' } else { letter });
            }
        }
    }

    /// The same number of values, all [`OTHER`].
    #[must_use]
    pub fn other(&self) -> Self {
        Self::new(&vec![OTHER; self.values().count()])
    }

    /// All values, each behind a `|`: the end of a metric's name in a proxy whose metrics have no labels.
    pub fn suffix(&self) -> &str {
        &self.0
    }

    /// The values.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.0.split(SEPARATOR).skip(1)
    }
}
