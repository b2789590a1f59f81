//! Tests that the examples in the pages of the rules have tests.
//!
//! A test in a folder `worked_examples` has the name of its section, and what it shows behind that. Any other
//! test names the sections in a comment: `Example of` or `Examples of`, and each heading in backticks.

use crate::tools;
use std::fs;
use std::path::Path;

/// The folders with the tests of the rules.
const SOURCES: [&str; 2] = ["filter", "metrics-agent"];

#[test]
fn every_example_of_the_rules_has_a_test() {
    let tests: Vec<_> = SOURCES.iter().flat_map(|folder| tests_below(&tools::root().join(folder))).collect();
    let pages = fs::read_dir(tools::root().join("docs/reference/rules")).unwrap();
    let pages: Vec<_> = pages.map(|page| fs::read_to_string(page.unwrap().path()).unwrap()).collect();
    let mut sections = 0;
    let mut lacking = Vec::new();
    for section in pages.iter().flat_map(|page| page.split("\n## ").skip(1)) {
        let (heading, text) = section.split_once('\n').unwrap();
        let heading = heading.trim_matches('`');
        let examples = text.matches("*Example.*").count();
        sections += usize::from(examples > 0);
        if tests.iter().filter(|test| test.is_of(heading)).count() < examples {
            lacking.push(heading);
        }
    }
    assert!(sections > 80, "{sections} sections with examples");
    assert!(lacking.is_empty(), "examples without a test, by their sections: {lacking:?}");
}

/// A test, and the sections whose examples it shows.
#[derive(Debug, PartialEq)]
enum Example {
    /// The test's name has the heading.
    Named(String),
    /// Its comment has the headings.
    Commented(Vec<String>),
}

impl Example {
    /// Whether it is of the section with this heading.
    fn is_of(&self, heading: &str) -> bool {
        match self {
            Self::Named(name) => {
                let section = heading.replace('-', "_");
                name.strip_prefix(&section).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
            }
            Self::Commented(headings) => headings.iter().any(|named| named == heading),
        }
    }
}

fn tests_below(folder: &Path) -> Vec<Example> {
    let mut examples = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                examples.extend(tests_of(&fs::read_to_string(&path).unwrap(), is_worked(&path)));
            }
        }
    }
    examples
}

fn is_worked(path: &Path) -> bool {
    path.parent().is_some_and(|folder| folder.ends_with("worked_examples"))
}

/// The examples that the tests of a file show.
fn tests_of(text: &str, is_worked: bool) -> Vec<Example> {
    let (mut examples, mut comment, mut is_test) = (Vec::new(), String::new(), false);
    for line in text.lines().map(str::trim) {
        if let Some(part) = line.strip_prefix("///") {
            comment += part;
        } else if line.starts_with("#[") {
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        } else {
            let name = line.split_once("fn ").and_then(|(_, rest)| rest.split_once('('));
            match name.filter(|_| is_test) {
                Some(_) if comment.contains("Example of `") || comment.contains("Examples of `") => {
                    examples.push(Example::Commented(
                        comment.split('`').skip(1).step_by(2).map(str::to_owned).collect(),
                    ));
                }
                Some((name, _)) if is_worked => examples.push(Example::Named(name.to_owned())),
                _ => {}
            }
            comment.clear();
            is_test = false;
        }
    }
    examples
}

#[test]
fn a_test_shows_the_examples_that_its_name_or_comment_names() {
    let text = "/// Examples of `a-filter` and `A heading`.\n#[test]\nfn filters() {\n}\n\n#[test]\n\
                fn b_scorer_twice() {\n}\n\nfn b_picker() {\n";
    let named = Example::Named("b_scorer_twice".to_owned());
    let commented = Example::Commented(vec!["a-filter".to_owned(), "A heading".to_owned()]);
    assert!(named.is_of("b-scorer") && !named.is_of("b-scorer-t"));
    assert!(commented.is_of("A heading") && !commented.is_of("a"));
    assert_eq!(tests_of(text, true), [commented, named]);
    assert_eq!(tests_of(text, false).len(), 1);
}
