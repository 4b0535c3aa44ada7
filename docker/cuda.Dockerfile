# The jccl command for hosts with NVIDIA GPUs: docker build -f docker/cuda.Dockerfile -t jccl-cuda .
#   docker run --rm --gpus all --ipc=host jccl-cuda doctor --require nccl
#   docker run --rm --gpus all --ipc=host jccl-cuda selftest --engine nccl
# The base image has the CUDA runtime, cuBLAS and NCCL; the driver comes from the host. Not yet run on a GPU.
FROM maven:3.9-eclipse-temurin-25 AS build
WORKDIR /src
COPY . .
RUN mvn -B -Pimage -DskipTests package

FROM nvidia/cuda:13.0.1-runtime-ubuntu24.04
COPY --from=build /src/bench/target/image /opt/jccl
RUN useradd --create-home --uid 10001 jccl
USER jccl
WORKDIR /home/jccl
ENTRYPOINT ["/opt/jccl/bin/jccl"]
CMD ["--help"]
