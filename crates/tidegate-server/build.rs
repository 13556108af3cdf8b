//! Compiles `proto/` into the description that reflection hands out.

use std::path::PathBuf;
use std::{env, error, fs};

use prost::Message as _;

fn main() -> Result<(), Box<dyn error::Error>> {
    let protos = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    println!("cargo:rerun-if-changed={}", protos.display());
    let service = protos.join("envoy/service/ratelimit/v3/rls.proto");
    let described = protox::compile([service], [protos])?;
    let out = PathBuf::from(env::var("OUT_DIR")?).join("rls.bin");
    fs::write(out, described.encode_to_vec())?;
    Ok(())
}
