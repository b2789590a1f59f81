//! vLLM's own service of gRPC, whose requests have a text or token ids, and no model.

use super::generate::item_of;
use super::given::Ids;
use crate::protobuf::{Malformed, Payload, Value};
use crate::request::body::message::{MessageError, Messages};
use crate::request::body::object::{Format, Model, Rules};
use crate::request::body::{Body, Options, Parser, ResponseMessage};
use crate::request::prompt::{BYTES_PER_TOKEN, MAX_ITEMS, Pieces, Prompt, Text};

/// `Generate`: `tokenized` or `text`, `sampling_params.max_tokens`, `stream` and `mm_inputs`.
#[derive(Default)]
pub(super) struct GrpcGenerate;

impl Format<'_> for GrpcGenerate {
    const RULES: Rules = Rules {
        model: Model::InHeader,
        messages: Some(Messages {
            request: "GenerateRequest",
            read: read_generate,
            response: ResponseMessage::Generate,
        }),
        incomplete: "not supported request inputType",
        ..Rules::new(Parser::VllmGrpc, &["vllm.grpc.engine.VllmEngine/Generate"])
    };
}

/// `Embed`: `tokenized`.
#[derive(Default)]
pub(super) struct GrpcEmbed;

impl Format<'_> for GrpcEmbed {
    const RULES: Rules = Rules {
        model: Model::InHeader,
        messages: Some(Messages {
            request: "EmbedRequest",
            read: read_embed,
            response: ResponseMessage::Embed,
        }),
        incomplete: "missing tokenized input in EmbedRequest",
        ..Rules::new(Parser::VllmGrpc, &["vllm.grpc.engine.VllmEngine/Embed"])
    };
}

/// The input of a request. Of several the last counts, and token ids that follow one another are joined.
enum Input<'a> {
    Ids(Ids),
    Text(Text<'a>),
}

impl<'a> Input<'a> {
    /// Adds the token ids of a `TokenizedInput`.
    fn add_ids(
        current: Option<Self>,
        tokenized: Payload<'a>,
        options: &Options<'_>,
    ) -> Result<Self, Malformed> {
        let room = options.keep_bytes / BYTES_PER_TOKEN;
        let mut ids = match current {
            Some(Self::Ids(ids)) => ids,
            Some(Self::Text(_)) | None => Ids::default(),
        };
        for field in tokenized.fields() {
            match field? {
                (2, Value::Payload(packed)) => {
                    // An id takes a byte at least.
                    ids.ids.reserve(packed.arrived.len().min(room.saturating_sub(ids.ids.len())));
                    for id in packed.numbers() {
                        ids.add(low_half(id?), room);
                    }
                }
                (2, Value::Number(id)) => ids.add(low_half(id), room),
                _ => {}
            }
        }
        Ok(Self::Ids(ids))
    }

    /// The prompt. Images belong to token ids, among which their tokens are.
    fn prompt(self, options: &Options<'_>, images: &ImageInputs<'_>) -> Prompt<'a> {
        let mut pieces = Pieces::new(options.keep_bytes);
        match self {
            Self::Ids(Ids { ids, count }) => {
                pieces.ids(ids, count);
                images.add_to(&mut pieces);
            }
            Self::Text(text) => pieces.text(text),
        }
        Prompt::one(pieces)
    }
}

/// `MultimodalInputs`: placeholders of images, and the hashes of the first.
#[derive(Default)]
struct ImageInputs<'a> {
    placeholders: usize,
    hashes: Vec<&'a str>,
}

impl<'a> ImageInputs<'a> {
    /// Adds those of a message. Several messages of one field are joined.
    fn add(&mut self, inputs: Payload<'a>) -> Result<(), Malformed> {
        for field in inputs.fields() {
            match field? {
                (5, Value::Payload(_)) => self.placeholders += 1,
                (6, Value::Payload(hash)) if self.hashes.len() < MAX_ITEMS => self.hashes.push(hash.text()?),
                _ => {}
            }
        }
        Ok(())
    }

    fn add_to(&self, pieces: &mut Pieces<'_>) {
        for index in 0..self.placeholders {
            let hash = self.hashes.get(index).filter(|hash| !hash.is_empty());
            pieces.placeholder(hash.map(|hash| item_of(hash)));
        }
    }
}

/// A `uint32`, of which readers keep the low 32 bits.
#[expect(clippy::cast_possible_truncation, reason = "the encoding's rule")]
fn low_half(number: u64) -> u32 {
    number as u32
}

fn read_generate<'a>(request: Payload<'a>, options: &Options<'_>) -> Result<Body<'a>, MessageError> {
    let mut body = Body::default();
    let mut input = None;
    let mut images = ImageInputs::default();
    for field in request.fields() {
        match field? {
            (2, Value::Payload(tokenized)) => input = Some(Input::add_ids(input, tokenized, options)?),
            (3, Value::Payload(text)) => {
                let kept = text.text()?.as_bytes().into();
                input = Some(Input::Text(Text { kept, bytes: text.len() as u64 }));
            }
            (4, Value::Payload(sampling_params)) => {
                for field in sampling_params.fields() {
                    if let (8, Value::Number(max_tokens)) = field? {
                        body.max_output_tokens = Some(low_half(max_tokens).into());
                    }
                }
            }
            (5, Value::Number(stream)) => body.stream = stream != 0,
            (7, Value::Payload(inputs)) => images.add(inputs)?,
            _ => {}
        }
    }
    body.prompt = input.ok_or(MessageError::NoInput)?.prompt(options, &images);
    Ok(body)
}

fn read_embed<'a>(request: Payload<'a>, options: &Options<'_>) -> Result<Body<'a>, MessageError> {
    let mut input = None;
    for field in request.fields() {
        if let (2, Value::Payload(tokenized)) = field? {
            input = Some(Input::add_ids(input, tokenized, options)?);
        }
    }
    let prompt = input.ok_or(MessageError::NoInput)?.prompt(options, &ImageInputs::default());
    Ok(Body { prompt, ..Body::default() })
}
