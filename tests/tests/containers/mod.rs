//! Containers and jobs that survive the loss of their node, on the engines themselves.

mod containerd;
mod databases;
mod engine;
mod podman;
mod slurm;
