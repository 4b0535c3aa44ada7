# The jccl command for CPU hosts: docker build -f docker/cpu.Dockerfile -t jccl .
#   docker run --rm --shm-size=1g jccl all_reduce -b 8 -e 64M -f 2 -g 2
FROM maven:3.9-eclipse-temurin-25 AS build
WORKDIR /src
COPY . .
RUN mvn -B -Pimage -DskipTests package

FROM debian:12-slim
# util-linux (setpriv, taskset) is in the base image. For the MPI engine add openmpi-bin and libopenmpi3.
COPY --from=build /src/bench/target/image /opt/jccl
RUN useradd --create-home --uid 10001 jccl
USER jccl
WORKDIR /home/jccl
ENTRYPOINT ["/opt/jccl/bin/jccl"]
CMD ["--help"]
