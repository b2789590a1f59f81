//! The tokenizers of models: the text of their tokens, and the template by which a chat becomes text.
//!
//! A tokenizer is a folder with a [vocabulary](file::FileKind), and `tokenizer_config.json` and
//! `chat_template.jinja` if the model has them.

pub mod file;
pub mod vocabulary;

use core::fmt;
use core::time::Duration;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use file::{FileKind, VocabularyFile};
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use vocabulary::Vocabulary;
use xxhash_rust::xxh64::xxh64;

/// Names of files.
const CONFIG: &str = "tokenizer_config.json";
const TEMPLATE: &str = "chat_template.jinja";

/// Maximum size of a vocabulary, in bytes. The `tokenizer.json` of Gemma 3 has 33 MB.
const MAX_VOCABULARY: u64 = 64 << 20;

/// Maximum size of a `tokenizer_config.json`, in bytes.
const MAX_CONFIG: u64 = 4 << 20;

/// Maximum size of a chat template, in bytes. Proxies get it.
const MAX_TEMPLATE: u64 = 256 << 10;

/// Maximum length of the first and last token of a text, in bytes.
const MAX_NAME: usize = 256;

/// Time after which a folder that could not be read is read again.
const READ_AGAIN: Duration = Duration::from_secs(30);

/// Maximum number of folders that are remembered.
const MAX_FOLDERS: usize = 64;

/// The tokenizer of a model.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    /// The bytes of its tokens.
    pub vocabulary: Vocabulary,
    /// A hash of its vocabulary.
    pub digest: u64,
    /// The Jinja template of chats; empty: none.
    pub chat_template: String,
    /// The token before a text; empty: none.
    pub bos_token: String,
    /// The token behind a text; empty: none.
    pub eos_token: String,
    /// Whether the text of a completion begins with `bos_token`.
    pub adds_bos: bool,
    /// Whether text is normalized to NFC.
    pub normalizes: bool,
}

/// A `tokenizer_config.json`.
#[derive(Default, Deserialize)]
struct TokenizerConfig {
    #[serde(default)]
    bos_token: Option<SpecialToken>,
    #[serde(default)]
    eos_token: Option<SpecialToken>,
    #[serde(default)]
    add_bos_token: Option<bool>,
    #[serde(default)]
    chat_template: Option<Templates>,
    /// The tokens that are not in the vocabulary, by their ids.
    #[serde(default)]
    added_tokens_decoder: BTreeMap<u32, AddedToken>,
}

#[derive(Deserialize)]
struct AddedToken {
    content: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum SpecialToken {
    Text(String),
    Object { content: String },
}

/// One template, or several with names.
#[derive(Deserialize)]
#[serde(untagged)]
enum Templates {
    One(String),
    Named(Vec<NamedTemplate>),
}

#[derive(Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

impl Tokenizer {
    /// Reads the files of a folder, or a vocabulary and the other files of its folder. Errors name file and
    /// field.
    pub fn read(path: &Path) -> Result<Self, String> {
        let (path, kind) = vocabulary(path)?;
        let bytes = read(&path, MAX_VOCABULARY)?.ok_or_else(|| at(&path, "not found"))?;
        let VocabularyFile { mut vocabulary, normalizes, first_token } =
            kind.read(&bytes).map_err(|problem| at(&path, problem))?;
        let mut digest = xxh64(&bytes, 0);
        let config_path = path.with_file_name(CONFIG);
        // Mistral's library reads only its own file.
        let (config, template) = if kind.has_template() {
            (TokenizerConfig::read(&config_path)?, read_template(&path.with_file_name(TEMPLATE))?)
        } else {
            (
                TokenizerConfig {
                    bos_token: first_token.clone().map(SpecialToken::Text),
                    ..TokenizerConfig::default()
                },
                None,
            )
        };
        if kind == FileKind::Tiktoken {
            for (id, AddedToken { content }) in &config.added_tokens_decoder {
                let inserted = vocabulary.insert(*id, content.as_bytes(), true);
                inserted.map_err(|error| at(&config_path, format!("added_tokens_decoder.{id}: {error}")))?;
                digest = xxh64(content.as_bytes(), digest.wrapping_add((*id).into()));
            }
        }
        let chat_template =
            template.unwrap_or_else(|| config.chat_template.map(Templates::default).unwrap_or_default());
        if chat_template.len() as u64 > MAX_TEMPLATE {
            let (length, max) = (chat_template.len(), MAX_TEMPLATE);
            return Err(at(&config_path, format!("chat_template: {length} bytes; allowed are {max}")));
        }
        let token = |field: &str, token: Option<SpecialToken>| {
            let token = match token {
                Some(SpecialToken::Text(text) | SpecialToken::Object { content: text }) => text,
                None => String::new(),
            };
            let length = token.len();
            let problem = || at(&config_path, format!("{field}: {length} bytes; allowed are {MAX_NAME}"));
            if length <= MAX_NAME { Ok(token) } else { Err(problem()) }
        };
        let bos_token = token("bos_token", config.bos_token)?;
        let adds_bos = config.add_bos_token.unwrap_or(first_token.is_some());
        Ok(Self {
            vocabulary,
            digest,
            chat_template,
            adds_bos: adds_bos && !bos_token.is_empty(),
            bos_token,
            eos_token: token("eos_token", config.eos_token)?,
            normalizes,
        })
    }
}

/// A problem of a file.
fn at(path: &Path, problem: impl fmt::Display) -> String {
    format!("{}: {problem}", path.display())
}

impl TokenizerConfig {
    /// Reads a file; empty if there is none.
    fn read(path: &Path) -> Result<Self, String> {
        let Some(json) = read(path, MAX_CONFIG)? else { return Ok(Self::default()) };
        serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_slice(&json))
            .map_err(|error| at(path, error))
    }
}

/// Reads the template of chats; `None`: there is no file.
fn read_template(path: &Path) -> Result<Option<String>, String> {
    let text = read(path, MAX_TEMPLATE)?.map(String::from_utf8).transpose();
    text.map_err(|_| at(path, "must be UTF-8"))
}

/// The vocabulary in a folder, or at the path of a file.
fn vocabulary(path: &Path) -> Result<(PathBuf, FileKind), String> {
    let names = || FileKind::ALL.map(FileKind::name).join(", ");
    if path.is_file() {
        let kind = path.file_name().and_then(|name| FileKind::of_name(name.to_str()?));
        let problem = || at(path, format!("the name of a vocabulary is one of {}", names()));
        return Ok((path.to_owned(), kind.ok_or_else(problem)?));
    }
    let mut files = FileKind::ALL.into_iter().map(|kind| (path.join(kind.name()), kind));
    files.find(|(file, _)| file.exists()).ok_or_else(|| at(path, format!("has none of {}", names())))
}

impl Templates {
    /// The template for chats without a name.
    fn default(self) -> String {
        match self {
            Self::One(template) => template,
            Self::Named(templates) => {
                let named = templates.into_iter().find(|template| template.name == "default");
                named.map(|template| template.template).unwrap_or_default()
            }
        }
    }
}

/// Reads a file; `None`: there is none.
fn read(path: &Path, max: u64) -> Result<Option<Vec<u8>>, String> {
    match path.metadata() {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => return Err(at(path, "is not a file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(at(path, error)),
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(max + 1).read_to_end(&mut bytes))
        .map_err(|error| at(path, error))?;
    if bytes.len() as u64 > max {
        return Err(at(path, format!("is larger than the allowed {max} bytes")));
    }
    Ok(Some(bytes))
}

/// The tokenizers of all models.
#[derive(Debug)]
pub struct Tokenizers {
    /// Folders or vocabularies by the names of models.
    folders: Vec<(String, PathBuf)>,
    /// The last reading of each folder.
    read: parking_lot::Mutex<HashMap<PathBuf, Arc<LastReading>>>,
}

/// The last reading of a folder, and its time. A reader of the folder holds it, so that others wait and need
/// not read.
type LastReading = Mutex<Option<(Instant, ReadResult)>>;

type ReadResult = Result<Arc<Tokenizer>, String>;

impl Tokenizers {
    /// The tokenizers in these folders, by the name of a model or the path that its servers give for it.
    pub fn new(folders: Vec<(String, PathBuf)>) -> Self {
        Self { folders, read: parking_lot::Mutex::default() }
    }

    /// The tokenizer of a model with these names, which its server has from `root`: a folder that exists here
    /// too, or a name.
    pub async fn of_model(&self, names: &[String], root: Option<&str>) -> ReadResult {
        let is_named = |name: &str| names.iter().any(|own| own == name) || root == Some(name);
        let flagged = self.folders.iter().find(|(name, _)| is_named(name)).map(|(_, folder)| folder.clone());
        let folder = if flagged.is_some() { flagged } else { of_server(root).await };
        let Some(folder) = folder else {
            let name = names.first().map_or("", String::as_str);
            return Err(format!("no tokenizer of model {name:?} (--tokenizer {name}=PATH)"));
        };
        self.in_folder(folder).await
    }

    /// Reads a folder once, however many servers wait for it.
    async fn in_folder(&self, folder: PathBuf) -> ReadResult {
        let last = self.last_reading(&folder);
        let mut last = last.lock().await;
        if let Some((at, result)) = &*last
            && (result.is_ok() || at.elapsed() < READ_AGAIN)
        {
            return result.clone();
        }
        let path = folder.clone();
        let reading = spawn_blocking(move || Tokenizer::read(&path).map(Arc::new)).await;
        let result = reading.unwrap_or_else(|error| Err(error.to_string()));
        match &result {
            Ok(tokenizer) => {
                let (tokens, has_chats) = (tokenizer.vocabulary.count(), !tokenizer.chat_template.is_empty());
                tracing::info!(path = %folder.display(), tokens, has_chats, "read a tokenizer");
            }
            Err(problem) => tracing::warn!(problem, "a tokenizer is refused"),
        }
        *last = Some((Instant::now(), result.clone()));
        result
    }

    fn last_reading(&self, folder: &Path) -> Arc<LastReading> {
        let mut read = self.read.lock();
        if read.len() >= MAX_FOLDERS {
            // A server may name any folder.
            read.retain(|folder, _| self.folders.iter().any(|(_, own)| own == folder));
        }
        Arc::clone(read.entry(folder.to_owned()).or_default())
    }
}

/// The folder from which a server has its model, if it exists here too with a tokenizer. A server may name
/// any folder, also of a slow mount.
async fn of_server(root: Option<&str>) -> Option<PathBuf> {
    let root = Path::new(root?);
    if root.is_absolute() {
        for kind in FileKind::ALL {
            if tokio::fs::metadata(root.join(kind.name())).await.is_ok_and(|file| file.is_file()) {
                return Some(root.to_owned());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/captures/kv-events/tiny-model");

    /// A folder with these files, and the recorded `tokenizer.json` unless there is another one.
    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::copy(Path::new(TINY).join("tokenizer.json"), folder.path().join("tokenizer.json")).unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    #[test]
    fn a_saved_model_has_template_and_tokens() {
        let tiny = Tokenizer::read(Path::new(TINY)).unwrap();
        assert!(tiny.chat_template.starts_with("{% for m in messages %}"));
        assert_eq!((tiny.bos_token.as_str(), tiny.eos_token.as_str()), ("<s>", "</s>"));
        assert!(!tiny.adds_bos && !tiny.normalizes);
        let config = r#"{"bos_token": {"content": "<b>", "lstrip": false}, "eos_token": null, "add_bos_token": true,
            "chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]}"#;
        let other = Tokenizer::read(folder(&[("tokenizer_config.json", config)]).path()).unwrap();
        assert_eq!([&other.chat_template, &other.bos_token, &other.eos_token], ["d", "<b>", ""]);
        assert!(other.adds_bos);
        let alone = Tokenizer::read(folder(&[]).path()).unwrap();
        assert_eq!([&alone.chat_template, &alone.bos_token], ["", ""]);
        assert_eq!(alone.digest, tiny.digest);
    }

    #[test]
    fn refusals_name_file_and_field() {
        let long = "x".repeat(300_000);
        for (name, text, part) in [
            ("tokenizer.json", "{}", "model"),
            ("tokenizer_config.json", r#"{"bos_token": 7}"#, "bos_token"),
            ("tokenizer_config.json", &format!(r#"{{"eos_token": "{long}"}}"#), "eos_token: 300000 bytes"),
            (
                "tokenizer_config.json",
                &format!(r#"{{"chat_template": "{long}"}}"#),
                "chat_template: 300000 bytes",
            ),
            ("chat_template.jinja", &long, "larger than the allowed 262144 bytes"),
        ] {
            let error = Tokenizer::read(folder(&[(name, text)]).path()).unwrap_err();
            assert!(error.contains(name) && error.contains(part), "{error}");
        }
        let error = Tokenizer::read(Path::new("/dev")).unwrap_err();
        assert_eq!(error, "/dev: has none of tokenizer.json, tekken.json, tiktoken.model");
        let special = folder(&[]);
        std::fs::create_dir(special.path().join("chat_template.jinja")).unwrap();
        assert!(Tokenizer::read(special.path()).unwrap_err().contains("is not a file"));
    }

    /// An empty folder with these files.
    fn files(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    fn text(tokenizer: &Tokenizer, tokens: &[u32]) -> Option<Vec<u8>> {
        tokenizer.vocabulary.text(tokens, true).map(|text| text.behind(false).to_vec())
    }

    #[test]
    fn a_tiktoken_vocabulary_has_its_special_tokens_in_the_configuration() {
        let config = r#"{"bos_token": "[BOS]", "chat_template": "t", "added_tokens_decoder": {"2": {"content": "[BOS]", "special": true}}}"#;
        let folder = files(&[("tiktoken.model", "YQ== 0\nYg== 1\n"), ("tokenizer_config.json", config)]);
        let tokenizer = Tokenizer::read(folder.path()).unwrap();
        assert_eq!(text(&tokenizer, &[2, 0, 1]), Some(b"[BOS]ab".to_vec()));
        assert_eq!((tokenizer.chat_template.as_str(), tokenizer.bos_token.as_str()), ("t", "[BOS]"));
        assert!(!tokenizer.adds_bos);
        let other = files(&[
            ("tiktoken.model", "YQ== 0\nYg== 1\n"),
            ("tokenizer_config.json", &config.replace("\"2\"", "\"3\"")),
        ]);
        assert_ne!(
            Tokenizer::read(other.path()).unwrap().digest,
            tokenizer.digest,
            "equal tokens are other text"
        );
        let large = files(&[
            ("tiktoken.model", "YQ== 0"),
            ("tokenizer_config.json", &config.replace("\"2\"", "\"1048576\"")),
        ]);
        let error = Tokenizer::read(large.path()).unwrap_err();
        assert!(
            error.contains("tokenizer_config.json: added_tokens_decoder.1048576: allowed are"),
            "{error}"
        );
    }

    #[test]
    fn chats_of_mistral_have_no_template_and_completions_begin_with_its_token() {
        let tekken = r#"{"config": {"default_vocab_size": 4, "default_num_special_tokens": 3},
            "vocab": [{"rank": 0, "token_bytes": "YQ=="}]}"#;
        let template = ("chat_template.jinja", "t");
        let config = ("tokenizer_config.json", r#"{"bos_token": "x", "add_bos_token": false}"#);
        let alone = files(&[("tekken.json", tekken), template, config]);
        let tokenizer = Tokenizer::read(alone.path()).unwrap();
        assert_eq!(text(&tokenizer, &[1, 3]), Some(b"<s>a".to_vec()));
        assert_eq!((tokenizer.chat_template.as_str(), tokenizer.bos_token.as_str()), ("", "<s>"));
        assert!(tokenizer.adds_bos);
        // A folder with both has the template; the path of the file has not.
        let both = folder(&[("tekken.json", tekken), template]);
        assert_eq!(Tokenizer::read(both.path()).unwrap().chat_template, "t");
        assert_eq!(Tokenizer::read(&both.path().join("tekken.json")).unwrap().chat_template, "");
        let error = Tokenizer::read(&both.path().join("chat_template.jinja")).unwrap_err();
        assert!(
            error.contains("chat_template.jinja: the name of a vocabulary is one of tokenizer.json"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_flag_comes_before_the_folder_of_the_server() {
        let flagged = folder(&[("chat_template.jinja", "flag")]);
        let of_server = folder(&[("chat_template.jinja", "server")]);
        let root = of_server.path().to_str();
        let tokenizers = Tokenizers::new(vec![
            ("org/model".to_owned(), flagged.path().to_owned()),
            ("broken".to_owned(), PathBuf::from("/nowhere")),
        ]);
        let template = async |name: &str, root: Option<&str>| {
            let tokenizer = tokenizers.of_model(&["a".to_owned(), name.to_owned()], root).await;
            tokenizer.map(|tokenizer| tokenizer.chat_template.clone())
        };
        assert_eq!(template("org/model", root).await.as_deref(), Ok("flag"));
        assert_eq!(template("served", Some("org/model")).await.as_deref(), Ok("flag"));
        assert_eq!(template("served", root).await.as_deref(), Ok("server"));
        let absent = template("served", Some("org/other")).await.unwrap_err();
        assert_eq!(absent, "no tokenizer of model \"a\" (--tokenizer a=PATH)");
        assert_eq!(template("served", None).await.unwrap_err(), absent);
        assert!(template("broken", None).await.unwrap_err().contains("/nowhere: has none of"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_folder_that_is_read_for_long_delays_only_its_own_readers() {
        let [slow, other] = [folder(&[]), folder(&[])];
        let tokenizers = Tokenizers::new(Vec::new());
        let read = async |folder: &tempfile::TempDir| {
            let names = ["m".to_owned()];
            let reading = tokenizers.of_model(&names, folder.path().to_str());
            tokio::time::timeout(Duration::from_secs(60), reading).await
        };
        let reading = tokenizers.last_reading(slow.path());
        let reading = reading.lock().await;
        assert!(read(&other).await.unwrap().is_ok());
        read(&slow).await.unwrap_err();
        drop(reading);
        assert!(read(&slow).await.unwrap().is_ok());
    }
}
