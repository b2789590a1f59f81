//! Reads further objects of the cluster.

use serde::Deserialize;
use serde_json::Value as Json;

use crate::sources::kubernetes::{ApiError, Client, Namespaces};

/// Most bytes of one page of a list.
const MAX_PAGE_BYTES: usize = 32 * 1024 * 1024;

/// Most pages of a list.
const MAX_PAGES: usize = 200;

/// Objects in a page.
const PAGE: usize = 500;

/// A kind of objects in the API.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resource {
    /// The path of its group and version, such as `/apis/apps/v1`.
    pub(super) api: &'static str,
    /// Its name in paths, such as `deployments`.
    pub(super) plural: &'static str,
}

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    metadata: ListMetadata,
    #[serde(default)]
    items: Vec<Json>,
}

#[derive(Default, Deserialize)]
struct ListMetadata {
    #[serde(default, rename = "continue")]
    next: String,
}

/// Reads lists of the namespaces to check.
pub(super) struct Reader {
    client: Client,
    namespaces: Namespaces,
}

impl Reader {
    pub(super) fn new(client: Client, namespaces: Namespaces) -> Self {
        Self { client, namespaces }
    }

    /// The objects with this label selector; `None`: the cluster does not have the kind.
    pub(super) async fn list(
        &self,
        resource: Resource,
        selector: Option<&str>,
    ) -> Result<Option<Vec<Json>>, ApiError> {
        let Resource { api, plural } = resource;
        let paths = match &self.namespaces {
            Namespaces::All => vec![format!("{api}/{plural}")],
            Namespaces::Named(namespaces) => {
                namespaces.iter().map(|namespace| format!("{api}/namespaces/{namespace}/{plural}")).collect()
            }
        };
        let mut objects = Vec::new();
        for path in paths {
            match self.pages(&path, selector).await {
                Ok(more) => objects.extend(more),
                Err(ApiError::Status { code: 404, .. }) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(Some(objects))
    }

    async fn pages(&self, path: &str, selector: Option<&str>) -> Result<Vec<Json>, ApiError> {
        let selector = selector.map(|it| format!("&labelSelector={}", escaped(it))).unwrap_or_default();
        let (mut objects, mut next) = (Vec::new(), String::new());
        for _ in 0..MAX_PAGES {
            let page = format!("{path}?limit={PAGE}{selector}{next}");
            let list: List = read(&self.client.get(&page, MAX_PAGE_BYTES).await?)?;
            objects.extend(list.items);
            if list.metadata.next.is_empty() {
                break;
            }
            next = format!("&continue={}", escaped(&list.metadata.next));
        }
        Ok(objects)
    }

    /// One object; `None`: it does not exist.
    pub(super) async fn object(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Json>, ApiError> {
        let Resource { api, plural } = resource;
        let path = format!("{api}/namespaces/{}/{plural}/{}", escaped(namespace), escaped(name));
        match self.client.get(&path, MAX_PAGE_BYTES).await {
            Ok(bytes) => Ok(Some(read(&bytes)?)),
            Err(ApiError::Status { code: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn read<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(bytes).map_err(|error| ApiError::Malformed(error.to_string()))
}

/// A value of a query or a segment of a path.
fn escaped(value: &str) -> String {
    percent_encoding::utf8_percent_encode(value, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// The text at a JSON pointer; empty if there is none.
pub(super) fn text<'a>(json: &'a Json, pointer: &str) -> &'a str {
    json.pointer(pointer).and_then(Json::as_str).unwrap_or_default()
}

/// The list at a JSON pointer; empty if there is none.
pub(super) fn items<'a>(json: &'a Json, pointer: &str) -> &'a [Json] {
    json.pointer(pointer).and_then(Json::as_array).map_or(&[], Vec::as_slice)
}
