//! Lists of messages: the role and the content of each, without separators.

use core::marker::PhantomData;

use crate::json::{self, Array, Object, Reader, element, key, value};
use crate::request::body::Fault;
use crate::request::body::field::Scope;
use crate::request::prompt::{Pieces, Text};

/// The content of a message, as an API has it.
pub(super) trait MessageContent<'a>: Default {
    /// Reads a member of the message other than its role.
    fn member(&mut self, name: &str, message: &mut Object<'_, 'a>, scope: &Scope<'_>) -> json::Result<()>;

    /// Appends it to the prompt.
    fn append_to(self, pieces: &mut Pieces<'a>);
}

/// Reads the messages into parts of the prompt; `None` without a message.
pub(super) struct MessageList<'s, 'c, C> {
    scope: &'s Scope<'c>,
    content: PhantomData<C>,
}

impl<'s, 'c, C> MessageList<'s, 'c, C> {
    pub(super) fn new(scope: &'s Scope<'c>) -> Self {
        Self { scope, content: PhantomData }
    }
}

impl<'a, C: MessageContent<'a>> Reader<'a> for MessageList<'_, '_, C> {
    type Value = Option<Pieces<'a>>;

    fn other(self) -> Self::Value {
        self.scope.fault(Fault::Field("messages must be an array"));
        None
    }

    fn null(self) -> Self::Value {
        None
    }

    fn array(self, mut array: Array<'_, 'a>) -> json::Result<Self::Value> {
        let mut pieces = Pieces::new(self.scope.options.keep_bytes);
        let mut any = false;
        while let Some(()) = element(&mut array, ChatMessageReader::<C>::new(self.scope, &mut pieces))? {
            any = true;
        }
        Ok(any.then_some(pieces))
    }
}

struct ChatMessageReader<'s, 'c, 'a, C> {
    scope: &'s Scope<'c>,
    pieces: &'s mut Pieces<'a>,
    content: PhantomData<C>,
}

impl<'s, 'c, 'a, C> ChatMessageReader<'s, 'c, 'a, C> {
    fn new(scope: &'s Scope<'c>, pieces: &'s mut Pieces<'a>) -> Self {
        Self { scope, pieces, content: PhantomData }
    }
}

impl<'a, C: MessageContent<'a>> Reader<'a> for ChatMessageReader<'_, '_, 'a, C> {
    type Value = ();

    fn other(self) {
        self.scope.fault(Fault::Field("a message must be an object"));
    }

    fn null(self) {}

    fn object(self, mut object: Object<'_, 'a>) -> json::Result<()> {
        let Self { scope, pieces, .. } = self;
        let mut role = Text::default();
        let mut content = C::default();
        while let Some(name) = key(&mut object)? {
            if &*name == "role" {
                role = value(&mut object, scope.text("a message's role must be a string"))?;
            } else {
                content.member(&name, &mut object, scope)?;
            }
        }
        pieces.text(role);
        content.append_to(pieces);
        Ok(())
    }
}
