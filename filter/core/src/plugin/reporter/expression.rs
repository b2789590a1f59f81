//! Expressions in CEL over the usage of a response.
//!
//! The time to evaluate one is bounded by its length: it has no comprehensions and calls no function that
//! repeats work, so each part is evaluated at most once.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use cel::common::ast::{CallExpr, Expr, IdedExpr, operators};
use cel::parser::PrattParser;
use cel::{Context, Env, Value};

use crate::response::usage::Usage;

/// Maximum length of an expression, in bytes.
const MAX_LENGTH: usize = 512;

/// Maximum nesting of an expression's parts. Parser and evaluation recurse, and a thread of the agent has a
/// stack of 2 MiB.
const MAX_DEPTH: u16 = 32;

/// The only variable.
const USAGE: &str = "usage";

/// The functions that an expression may call.
const FUNCTIONS: [&str; 4] = ["bool", "double", "int", "uint"];

/// The operators of an expression, by the names that they have as calls.
const OPERATORS: [&str; 18] = [
    operators::ADD,
    operators::CONDITIONAL,
    operators::DIVIDE,
    operators::EQUALS,
    operators::GREATER,
    operators::GREATER_EQUALS,
    operators::IN,
    operators::INDEX,
    operators::LESS,
    operators::LESS_EQUALS,
    operators::LOGICAL_AND,
    operators::LOGICAL_NOT,
    operators::LOGICAL_OR,
    operators::MODULO,
    operators::MULTIPLY,
    operators::NEGATE,
    operators::NOT_EQUALS,
    operators::SUBSTRACT,
];

/// 2^63, the least number above all that a report can have.
const LIMIT: f64 = 9_223_372_036_854_775_808.0;

/// A compiled expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Expression(Arc<IdedExpr>);

impl Expression {
    /// Compiles a text, or returns what is wrong with it.
    pub(super) fn compile(text: &str) -> Result<Self, String> {
        if text.len() > MAX_LENGTH {
            return Err(format!("has {} bytes; allowed are at most {MAX_LENGTH}", text.len()));
        }
        let parsed = PrattParser::new().max_recursion_depth(MAX_DEPTH).parse(text).map_err(|errors| {
            let first = errors.errors.first();
            let first = first.map_or_else(String::new, |error| {
                format!(" at {}:{}: {}", error.pos.0, error.pos.1, error.msg)
            });
            format!("failed to compile{first}")
        })?;
        check(&parsed, MAX_DEPTH).map_err(|problem| format!("failed to compile: {problem}"))?;
        Ok(Self(Arc::new(parsed)))
    }

    /// The number that it has with this usage, without its fraction.
    pub(super) fn number(&self, usage: &Usage) -> Result<i64, String> {
        let number = match self.evaluate(usage)? {
            Value::Float(number) => number,
            Value::Int(number) => return Ok(number),
            other => return Err(format!("{other:?} is not a number")),
        };
        #[expect(clippy::cast_possible_truncation, reason = "within the range")]
        let whole = (-LIMIT..LIMIT).contains(&number).then_some(number as i64);
        whole.ok_or_else(|| format!("{number} is not a number of 64 bits"))
    }

    /// Whether it is true with this usage. A value that is not a boolean is not true.
    pub(super) fn is_true(&self, usage: &Usage) -> Result<bool, String> {
        Ok(matches!(self.evaluate(usage)?, Value::Bool(true)))
    }

    fn evaluate(&self, usage: &Usage) -> Result<Value, String> {
        static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));
        let mut context = Context::with_env(Arc::clone(&ENVIRONMENT));
        context.add_variable_from_value(USAGE, value_of(usage));
        Value::resolve(&self.0, &context).map_err(|error| error.to_string())
    }
}

/// The variable `usage`. All numbers are doubles, as in the EPP.
fn value_of(usage: &Usage) -> Value {
    let number = |tokens: u64| Value::Float(tokens as f64);
    let mut fields = HashMap::from([
        ("prompt_tokens", number(usage.input)),
        ("completion_tokens", number(usage.output)),
        ("total_tokens", number(usage.total)),
    ]);
    if let Some(cached) = usage.cached {
        fields.insert("prompt_tokens_details", HashMap::from([("cached_tokens", number(cached))]).into());
    }
    fields.into()
}

/// Refuses parts whose evaluation is not bounded, and names that do not exist.
fn check(expression: &IdedExpr, depth: u16) -> Result<(), String> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(format!("its parts are nested deeper than {MAX_DEPTH}"));
    };
    match &expression.expr {
        Expr::Literal(_) => Ok(()),
        Expr::Ident(name) if name == USAGE => Ok(()),
        Expr::Ident(name) => Err(format!("undeclared reference to {name:?}; the only variable is {USAGE}")),
        Expr::Select(select) => check(&select.operand, depth),
        Expr::List(list) => list.elements.iter().try_for_each(|element| check(element, depth)),
        Expr::Call(CallExpr { func_name, target, args }) => {
            let name = func_name.as_str();
            // A call with a target, such as `a.int()`, is a method; there is none here, and its target is not
            // checked.
            if target.is_some() || !(OPERATORS.contains(&name) || FUNCTIONS.contains(&name)) {
                return Err(format!("unknown function {func_name:?}; allowed: has, {}", FUNCTIONS.join(", ")));
            }
            args.iter().try_for_each(|argument| check(argument, depth))
        }
        Expr::Comprehension(_) => {
            Err("has a macro that repeats its argument, such as map or exists; these are not evaluated for each response".to_owned())
        }
        Expr::Map(_) | Expr::Struct(_) | Expr::Unspecified => {
            Err("has a map or a message, which nothing here can use".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::sync::mpsc::{self, RecvTimeoutError};

    use super::*;
    use crate::test;

    fn problem(text: &str) -> String {
        Expression::compile(text).unwrap_err()
    }

    #[test]
    fn what_may_take_long_or_does_not_exist_is_refused() {
        for (text, expected) in [
            ("tokens", "undeclared reference to \"tokens\"; the only variable is usage"),
            ("[1, 2].map(x, x * 2)[0]", "has a macro that repeats its argument"),
            ("usage.exists(x, true)", "has a macro that repeats its argument"),
            ("'a'.matches('a')", "unknown function \"matches\"; allowed: has, bool, double, int, uint"),
            ("size([1])", "unknown function \"size\""),
            ("usage.int()", "unknown function \"int\""),
            ("{'a': 1}.a", "has a map or a message"),
            ("usage.?prompt_tokens", "failed to compile at "),
            ("1 + ", "failed to compile at "),
            ("", "failed to compile at "),
        ] {
            let problem = problem(text);
            assert!(problem.contains(expected), "{text}: {problem}");
            assert!(!problem.contains('\n'), "{problem}");
        }
    }

    /// An expression whose time grew exponentially with its length would take longer.
    const DEADLINE: Duration = Duration::from_secs(60);

    /// Texts that nest or repeat as much as the limit of the length allows.
    fn hostile() -> Vec<String> {
        let nested = |before: &str, middle: &str, after: &str| {
            let times = (MAX_LENGTH - middle.len()) / (before.len() + after.len());
            format!("{}{middle}{}", before.repeat(times), after.repeat(times))
        };
        vec![
            nested("(", "1", ")"),
            nested("[", "1", "]"),
            nested("{", "1", "}"),
            nested("{1:", "1", "}"),
            nested("!", "true", ""),
            nested("-", "1", ""),
            nested("- ", "1", ""),
            nested("", "1", "+1"),
            nested("", "true", "&&true"),
            nested("", "true", "||false"),
            nested("", "1", "<1"),
            nested("", "usage", ".a"),
            nested("", "usage", "[1]"),
            nested("true?1:", "1", ""),
            nested("true?", "1", ":1"),
            nested("int(", "1", ")"),
            nested("has(", "usage.a", ")"),
            nested("[1].map(x,", "1", ")"),
            nested("usage.", "a", "()"),
            nested("(", "", ""),
            nested("[", "", ""),
            nested("'", "", ""),
            nested("\\", "", ""),
            nested("1?", "", ""),
            "9".repeat(MAX_LENGTH),
            format!("{}.0", "9".repeat(MAX_LENGTH - 2)),
            "ü".repeat(MAX_LENGTH / 2),
        ]
    }

    #[test]
    fn a_hostile_expression_fits_in_the_stack_of_a_thread_and_ends_soon() {
        let (end, ended) = mpsc::channel();
        let evaluated = std::thread::Builder::new().stack_size(2 << 20).spawn(move || {
            let usage = Usage { input: 1, ..Usage::default() };
            for text in hostile() {
                assert!(text.len() <= MAX_LENGTH, "{text}");
                let compiled = Expression::compile(&text);
                if let Ok(expression) = &compiled {
                    let _ = (expression.number(&usage), expression.is_true(&usage));
                }
            }
            end.send(()).unwrap();
        });
        assert_ne!(ended.recv_timeout(DEADLINE), Err(RecvTimeoutError::Timeout));
        evaluated.unwrap().join().unwrap();
        assert!(problem(&"1".repeat(MAX_LENGTH + 1)).starts_with("has 513 bytes; allowed are at most 512"));
    }

    #[test]
    fn parts_nest_up_to_a_limit() {
        let sum = |terms: usize| vec!["1"; terms].join("+");
        assert!(Expression::compile(&sum(usize::from(MAX_DEPTH))).is_ok());
        assert!(problem(&sum(usize::from(MAX_DEPTH) + 1)).contains("nested deeper than 32"));
    }

    proptest::proptest! {
        #[test]
        fn no_text_of_the_languages_words_panics(
            words in proptest::collection::vec(proptest::sample::select(WORDS), 0..40)
        ) {
            let usage = Usage { input: 7, cached: Some(1), ..Usage::default() };
            if let Ok(expression) = Expression::compile(&words.concat()) {
                let _ = (expression.number(&usage), expression.is_true(&usage));
            }
        }
    }

    const WORDS: &[&str] = &[
        "usage",
        ".",
        "prompt_tokens",
        "prompt_tokens_details",
        "cached_tokens",
        "has(",
        "int(",
        "double(",
        "uint(",
        "bool(",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "?",
        ":",
        ",",
        "+",
        "-",
        "*",
        "/",
        "%",
        "!",
        "&&",
        "||",
        "==",
        "!=",
        "<",
        ">=",
        " in ",
        "'a'",
        "b'a'",
        "\"",
        "true",
        "null",
        "1",
        "0",
        "2.5",
        "7u",
        "1e308",
        "9223372036854775807",
        "-9223372036854775808",
        " ",
        "\n",
        "//",
        "`",
        "\\",
        "ä",
    ];
}
