//! Copies the native module of its image into the folder that is its argument, for an init container:
//! `install-module /opt/endpoint-picker`.
//!
//! An Envoy may run with a file of this name, and a change of that file would change the code that Envoy
//! runs. So the copy gets another name first and is then renamed.

use std::env;
use std::fmt::Display;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

/// The module's path in the image.
const MODULE: &str = "/libendpoint_picker.so";

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    let [folder] = arguments.as_slice() else {
        return fail("takes one argument, the folder into which the module is copied");
    };
    match install(Path::new(MODULE), Path::new(folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => fail(reason),
    }
}

fn fail(reason: impl Display) -> ExitCode {
    eprintln!("install-module: {reason}");
    ExitCode::FAILURE
}

/// Copies a file into a folder that exists. Another file of the same name there stays whole until the copy
/// takes its place.
fn install(module: &Path, folder: &Path) -> Result<(), String> {
    let name = module.file_name().ok_or_else(|| format!("{} is not a file", module.display()))?;
    let target = folder.join(name);
    let copy = target.with_extension("so.new");
    fs::copy(module, &copy)
        .map_err(|reason| format!("cannot copy {} to {}: {reason}", module.display(), copy.display()))?;
    fs::rename(&copy, &target)
        .map_err(|reason| format!("cannot rename {} to {}: {reason}", copy.display(), target.display()))
}

#[cfg(test)]
mod tests {
    use super::install;
    use std::fs::{self, File};
    use std::io::Read;

    #[test]
    fn an_open_file_keeps_its_content_when_it_is_replaced() {
        let [image, volume] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let module = image.path().join("libendpoint_picker.so");
        let installed = volume.path().join("libendpoint_picker.so");
        fs::write(&module, "old").unwrap();
        install(&module, volume.path()).unwrap();
        let mut mapped = File::open(&installed).unwrap();

        fs::write(&module, "new").unwrap();
        install(&module, volume.path()).unwrap();
        let mut content = String::new();
        mapped.read_to_string(&mut content).unwrap();
        assert_eq!((content.as_str(), fs::read_to_string(&installed).unwrap().as_str()), ("old", "new"));
        assert_eq!(fs::read_dir(volume.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_missing_folder_is_named() {
        let image = tempfile::tempdir().unwrap();
        let module = image.path().join("libendpoint_picker.so");
        fs::write(&module, "module").unwrap();
        let reason = install(&module, &image.path().join("missing")).unwrap_err();
        assert!(reason.contains("missing/libendpoint_picker.so.new"), "{reason}");
    }
}
