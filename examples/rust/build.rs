//! Generate the stubs from the contract.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["taskraft/v1/task_service.proto", "taskraft/v1/session_service.proto"];
    let descriptors = protox::compile(files, ["../../proto"])?;
    tonic_prost_build::configure().build_server(false).compile_fds(descriptors)?;
    println!("cargo:rerun-if-changed=../../proto");
    Ok(())
}
