//! The session that a request belongs to: the prompts of a conversation or of an agent, each of which extends
//! the one before it.
//!
//! Clients name their sessions, each in its own way. A name separates prompts that extend each other, and
//! nothing else: its hash is mixed with the hashes of the prompt's blocks, which begin with the model and
//! the salt. So a client that sends another client's name with a prompt of its own has a session of its
//! own, and one that also has the whole prompt has nothing to gain: a session changes no right, and no text
//! of it is kept.

use core::num::NonZeroU64;
use core::time::Duration;

use smallvec::smallvec;
use xxhash_rust::xxh64::Xxh64;

use crate::headers::Headers;
use crate::json::{self, Object, Pass, Reader, Str, key, value};
use crate::state::StateChange;

/// The key of the [state](crate::state::Sessions) of sessions. Instances of plugins have hashes of their
/// types and names as keys.
pub(crate) const SESSIONS: u64 = 0x5345_5353_494f_4e01;

/// Tokens from which a prompt without a name is a turn of a session. Servers compute shorter ones in some
/// tens of milliseconds, and most requests of other kinds than chats and agents are shorter.
pub(crate) const MIN_UNNAMED_TOKENS: usize = 1024;

/// The longest name that counts, in bytes. Clients send UUIDs, and some put two of them together.
const MAX_NAME_LENGTH: usize = 256;

/// The source by which a session is known, in the order in which sources count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SessionSource {
    /// The header or cookie that the configuration names.
    Configured,
    /// Claude Code's headers, or its `metadata.user_id`.
    ClaudeCode,
    /// Codex' headers.
    Codex,
    /// The header that opencode and others send.
    SessionHeader,
    /// The header and fields of LiteLLM.
    LiteLlm,
    /// The field `session_id`, as vLLM has it.
    SessionId,
    /// OpenAI's field `prompt_cache_key`.
    PromptCacheKey,
    /// The stored response or conversation that the request continues.
    Stored,
    /// The prompt alone.
    Prompt,
}

impl SessionSource {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Configured,
        Self::ClaudeCode,
        Self::Codex,
        Self::SessionHeader,
        Self::LiteLlm,
        Self::SessionId,
        Self::PromptCacheKey,
        Self::Stored,
        Self::Prompt,
    ];

    /// The name in metrics and explanations.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Configured => "configuration",
            Self::ClaudeCode => "claude_code",
            Self::Codex => "codex",
            Self::SessionHeader => "session_header",
            Self::LiteLlm => "litellm",
            Self::SessionId => "session_id",
            Self::PromptCacheKey => "prompt_cache_key",
            Self::Stored => "stored_response",
            Self::Prompt => "prompt",
        }
    }
}

/// The headers by which clients name their sessions: the session, a part of it that has a prompt of its own,
/// and the source.
const HEADERS: [(&str, Option<&str>, SessionSource); 6] = [
    ("x-claude-code-session-id", Some("x-claude-code-agent-id"), SessionSource::ClaudeCode),
    ("session-id", Some("thread-id"), SessionSource::Codex),
    ("session_id", Some("thread-id"), SessionSource::Codex),
    ("x-session-affinity", None, SessionSource::SessionHeader),
    ("x-session-id", None, SessionSource::SessionHeader),
    ("x-litellm-session-id", None, SessionSource::LiteLlm),
];

/// The header by which opencode names the session whose sub-agent sends a request.
const PARENT: &str = "x-parent-session-id";

/// The longest user's id that is read as JSON, in bytes: Claude Code's has 150.
const MAX_USER_LENGTH: usize = 1024;

/// The text before the session in the `metadata.user_id` of older versions of Claude Code.
const SESSION_OF_USER: &str = "_session_";

/// The name that a client gives its session: a hash, because the text may be private.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionName {
    /// Where the client names it.
    pub source: SessionSource,
    hash: NonZeroU64,
    /// The same for all parts of a session.
    agent: NonZeroU64,
}

impl SessionName {
    /// The name of a session, or of a part of it. `None`: it is empty or longer than 256 bytes.
    pub fn of(source: SessionSource, name: &str, part: Option<&str>) -> Option<Self> {
        let is_name = |text: &str| (1..=MAX_NAME_LENGTH).contains(&text.len());
        let (name, part) = (name.trim(), part.map(str::trim).filter(|part| is_name(part)));
        if !is_name(name) {
            return None;
        }
        let digest = |hash: &Xxh64| NonZeroU64::new(hash.digest()).unwrap_or(NonZeroU64::MAX);
        let mut hash = Xxh64::new(0);
        hash.update(name.as_bytes());
        let agent = digest(&hash);
        if let Some(part) = part {
            hash.update(&[0]);
            hash.update(part.as_bytes());
        }
        Some(Self { source, hash: digest(&hash), agent })
    }

    /// The name in the headers that clients send without a configuration.
    pub(crate) fn in_headers(headers: Headers<'_>) -> Option<Self> {
        let name = HEADERS.iter().find_map(|&(session, part, source)| {
            Self::of(source, headers.get(session)?, part.and_then(|part| headers.get(part)))
        })?;
        let has_parent = name.source == SessionSource::SessionHeader;
        let parent = if has_parent { headers.get(PARENT) } else { None };
        let agent = parent.and_then(|parent| Self::of(name.source, parent, None)).map(|parent| parent.agent);
        Some(Self { agent: agent.unwrap_or(name.agent), ..name })
    }

    /// Whether a header names sessions without a configuration.
    pub(crate) fn is_known_header(name: &str) -> bool {
        HEADERS.iter().any(|(known, ..)| known.eq_ignore_ascii_case(name))
    }

    /// The one of two names whose source comes first.
    pub(crate) fn first(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        [one, other].into_iter().flatten().min_by_key(|name| name.source)
    }

    /// The hash that a session has in common with those of its sub-agents.
    pub(crate) fn agent(self) -> u64 {
        self.agent.get()
    }

    /// The hash that is mixed with the hashes of this session's prompt blocks.
    pub fn hash(self) -> u64 {
        self.hash.get()
    }
}

/// Reads a string that names a session.
pub(crate) struct NameReader(pub(crate) SessionSource);

impl<'a> Reader<'a> for NameReader {
    type Value = Option<SessionName>;

    fn other(self) -> Self::Value {
        None
    }

    fn string(self, name: Str<'a, '_>) -> Self::Value {
        SessionName::of(self.0, &name, None)
    }
}

/// Reads the session in the field `metadata` of a body.
pub(crate) struct MetadataReader;

impl<'a> Reader<'a> for MetadataReader {
    type Value = Option<SessionName>;

    fn other(self) -> Self::Value {
        None
    }

    fn object(self, mut object: Object<'_, 'a>) -> json::Result<Self::Value> {
        let mut found = None;
        while let Some(name) = key(&mut object)? {
            let named = match &*name {
                "user_id" => value(&mut object, UserReader)?,
                "session_id" => value(&mut object, NameReader(SessionSource::LiteLlm))?,
                _ => {
                    value(&mut object, Pass)?;
                    None
                }
            };
            found = SessionName::first(found, named);
        }
        Ok(found)
    }
}

/// Reads the session in a user's id, as Claude Code writes it: JSON in a string, with a member `session_id`;
/// before, `user_…_account_…_session_…`.
struct UserReader;

impl<'a> Reader<'a> for UserReader {
    type Value = Option<SessionName>;

    fn other(self) -> Self::Value {
        None
    }

    fn string(self, user: Str<'a, '_>) -> Self::Value {
        if user.starts_with('{') && user.len() <= MAX_USER_LENGTH {
            return json::read(&user, UserObjectReader).ok().flatten();
        }
        let (_, session) = user.rsplit_once(SESSION_OF_USER)?;
        SessionName::of(SessionSource::ClaudeCode, session, None)
    }
}

/// Reads the session in a user's id that is JSON.
struct UserObjectReader;

impl<'a> Reader<'a> for UserObjectReader {
    type Value = Option<SessionName>;

    fn other(self) -> Self::Value {
        None
    }

    fn object(self, mut object: Object<'_, 'a>) -> json::Result<Self::Value> {
        let mut found = None;
        while let Some(name) = key(&mut object)? {
            if &*name == "session_id" {
                found = value(&mut object, NameReader(SessionSource::ClaudeCode))?;
            } else {
                value(&mut object, Pass)?;
            }
        }
        Ok(found)
    }
}

/// A request's place in its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionTurn {
    /// How the session is known.
    pub source: SessionSource,
    /// The hash that all turns of the session have in common.
    pub key: u64,
    /// Whether a prompt before it was of the session.
    pub is_continued: bool,
    /// The end of its prompt, which the next turn has in its own; `None`: the server keeps the prompt.
    pub(crate) end: Option<u64>,
}

impl SessionTurn {
    /// The change by which the next turn is known. The request goes to this endpoint, given by its key, at
    /// this time.
    pub(crate) fn change(&self, endpoint: u64, at: Duration) -> Option<StateChange> {
        let end = self.end?;
        Some(StateChange { plugin: SESSIONS, endpoint, at, words: smallvec![end, self.key] })
    }
}

impl core::fmt::Display for SessionTurn {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let turn = if self.is_continued { "continued" } else { "first turn" };
        write!(f, "session {:016x} by {}, {turn}", self.key, self.source.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    fn of(name: &str, part: Option<&str>) -> Option<u64> {
        SessionName::of(SessionSource::Codex, name, part).map(SessionName::hash)
    }

    #[test]
    fn names_are_bounded_and_a_part_is_another_name() {
        assert_eq!(of(" s ", None), of("s", None));
        assert_ne!(of("s", Some("a")), of("s", None));
        assert_ne!(of("s", Some("a")), of("sa", None));
        assert_eq!((of("", None), of(" ", Some("a"))), (None, None));
        let longest = "x".repeat(MAX_NAME_LENGTH);
        assert!(of(&longest, None).is_some());
        assert_eq!(of(&format!("{longest}x"), None), None);
        assert_eq!(of("s", Some(&format!("{longest}x"))), of("s", None));
    }

    #[test]
    fn sub_agents_have_the_agent_of_their_session() {
        let of = |headers: &[(&str, &str)]| {
            let pairs = headers.iter().copied().collect();
            let name = SessionName::in_headers(Headers(&pairs)).unwrap();
            (name.hash(), name.agent())
        };
        let (claude, session) = ("x-claude-code-session-id", "x-session-id");
        let own = of(&[(claude, "s")]);
        assert_eq!(own.0, own.1);
        for agent in [
            of(&[(claude, "s"), ("x-claude-code-agent-id", "a")]),
            of(&[(session, "a"), ("x-parent-session-id", "s")]),
        ] {
            assert_eq!(agent.1, own.1);
            assert_ne!(agent.0, own.0);
        }
        let other = of(&[(claude, "t"), ("x-parent-session-id", "s")]);
        assert_ne!(other.1, own.1, "a client of another kind");
    }

    #[test]
    fn sources_have_different_names_in_their_order() {
        let mut names = SessionSource::ALL.map(SessionSource::as_str).to_vec();
        assert!(SessionSource::ALL.is_sorted());
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SessionSource::ALL.len());
    }
}
