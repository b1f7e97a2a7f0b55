//! Containers and jobs that survive the loss of their node, on the engines themselves.

mod containerd;
mod podman;
mod slurm;
